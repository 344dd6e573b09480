// In which of several ways the members of a group do collective operations.
#ifndef PAWL_WORKER_COLLECTIVE_COLLECTIVE_KIND_H_
#define PAWL_WORKER_COLLECTIVE_COLLECTIVE_KIND_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/collective/connectable_collective.h"

namespace pawl {

// One way, as a process offers it to the others.
struct CollectiveKind {
  // A word: gloo, nccl.
  std::string name;
  // What no two members may share in this way of doing it: a GPU. Empty: nothing. Printable, one line.
  std::string exclusive;
  CollectiveFactory make;
};

// What a process offers, in the order of preference, as one text for the others; all processes prefer in the same order.
std::string OfferOf(absl::Span<const CollectiveKind> kinds);

// A member as the others see it when a group forms.
struct OfferingMember {
  std::string node;
  // It has trained with others, who are not to suffer for somebody who joins them.
  bool has_state = false;
  std::string offer;
};

// The first kind that all members offer and in which no two share what they may not; the same on all members. Where there is
// none, says who offers what: INVALID_ARGUMENT for a member that cannot do what the others do, and UNAVAILABLE for those
// others, who are to form another group without it. Those others are the members with state, if these have a kind in common,
// and nobody otherwise.
//
// REQUIRES: place < members.size().
absl::StatusOr<std::string> ChooseKind(absl::Span<const OfferingMember> members, size_t place);

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_COLLECTIVE_KIND_H_
