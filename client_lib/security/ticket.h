// Tickets: the scheduler's proof that a rank, or a client's number, belongs to the process that
// shows it.
//
// Certificates tell roles apart, but all workers of a job may share one. A worker proves with a
// ticket that the scheduler has given it the rank in this incarnation. Servers check tickets with a
// key that only they and the scheduler know.
#ifndef PAWL_CLIENT_LIB_SECURITY_TICKET_H_
#define PAWL_CLIENT_LIB_SECURITY_TICKET_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace pawl {

// The kinds of senders of pushes (RequestHeader.sender).
enum class TicketSender : uint8_t { kRank = 1, kClient = 2 };

inline constexpr size_t kTicketKeyBytes = 32;
inline constexpr size_t kTicketBytes = 16;

// A random key, one for each job.
std::string NewTicketKey();

// The first kTicketBytes of HMAC-SHA256 (RFC 2104) over the sender's kind (one byte), number and
// incarnation (little-endian, 4 and 8 bytes).
std::string MakeTicket(absl::string_view key, TicketSender sender, uint32_t number,
                       uint64_t incarnation);

// Whether `ticket` is that sender's. Takes the same time for every wrong ticket of kTicketBytes.
bool IsTicketOf(absl::string_view key, TicketSender sender, uint32_t number, uint64_t incarnation,
                absl::string_view ticket);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_TICKET_H_
