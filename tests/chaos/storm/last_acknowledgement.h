// When a sender was last told that a push of its had arrived.
#ifndef PAWL_TESTS_CHAOS_STORM_LAST_ACKNOWLEDGEMENT_H_
#define PAWL_TESTS_CHAOS_STORM_LAST_ACKNOWLEDGEMENT_H_

#include <string>

#include "client_lib/base/clock.h"

namespace pawl {

// The time of the last acknowledgement in a file of notes (tests/harness/ledger/ledger.h), which
// may be written meanwhile; the beginning of time if there is none near its end.
MonotonicTime LastAcknowledgement(const std::string& path);

}  // namespace pawl

#endif  // PAWL_TESTS_CHAOS_STORM_LAST_ACKNOWLEDGEMENT_H_
