// Tickets: the scheduler's proof that a rank, or a client's number, belongs to the process that
// shows it.
//
// Certificates tell roles apart, but all workers of a job may share one. A worker proves with a
// ticket that the scheduler has given it the rank in this incarnation, and with another one that it
// is the node that it names. Servers and scheduler check tickets with a key that only they know.
#ifndef PAWL_CLIENT_LIB_SECURITY_TICKET_H_
#define PAWL_CLIENT_LIB_SECURITY_TICKET_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace pawl {

// Whom a ticket is for: a sender of pushes (RequestHeader.sender), or a node that calls the
// scheduler.
enum class TicketSender : uint8_t {
  kRank = 1,
  kClient = 2,
  kServerNode = 3,
  kWorkerNode = 4,
  kClientNode = 5,
};

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

// The same for a node, by its name, such as "worker-3". Empty, and false, for another name.
std::string MakeNodeTicket(absl::string_view key, absl::string_view node, uint64_t incarnation);
bool IsNodeTicketOf(absl::string_view key, absl::string_view node, uint64_t incarnation,
                    absl::string_view ticket);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_TICKET_H_
