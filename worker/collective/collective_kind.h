// Which of several implementations of collectives the members of a group use.
#ifndef PAWL_WORKER_COLLECTIVE_COLLECTIVE_KIND_H_
#define PAWL_WORKER_COLLECTIVE_COLLECTIVE_KIND_H_

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client_lib/base/clock.h"
#include "worker/collective/connectable_collective.h"

namespace pawl {

// One implementation, as a process offers it to the others.
struct CollectiveKind {
  // "gloo"; or "nccl" and its version, which must be the same on all members. Members match kinds
  // by name.
  std::string name;
  // A resource that no two members may share with this kind, as messages name it: a GPU. Empty:
  // none.
  std::string exclusive;
  CollectiveFactory make;
  // How long a member waits for the others' introductions once it has its own, and then for all
  // connections.
  MonotonicDuration connect_timeout = std::chrono::seconds(15);
};

// Encodes what a process offers, in its order of preference, for the other members. All processes
// prefer in the same order.
std::string EncodeOffer(absl::Span<const CollectiveKind> kinds);

// A member as the others see it when a group forms.
struct OfferingMember {
  std::string node;
  // Whether it has trained with others, whom a joiner must not disturb.
  bool has_state = false;
  std::string offer;
};

// Returns the first kind that all members offer and for which no two share an exclusive resource;
// the same on all members. A single member takes its last kind, which needs least.
//
// If there is none, the error says which member offers what. Members are admitted one by one, those
// with state first, then by place; a member that would leave the admitted ones without a kind is
// excluded. Admitted members get UNAVAILABLE and should form another group. Excluded ones get
// INVALID_ARGUMENT: no such group will accept them. So at least one member is admitted if any
// offers something.
//
// REQUIRES: place < members.size().
absl::StatusOr<std::string> ChooseKind(absl::Span<const OfferingMember> members, size_t place);

// Explains why `chosen` is not the member's first kind: which members it does not suit. Empty if it
// is the first.
std::string ExplainFallback(absl::Span<const OfferingMember> members, size_t place,
                            absl::string_view chosen);

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_COLLECTIVE_KIND_H_
