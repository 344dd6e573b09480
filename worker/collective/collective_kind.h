// In which of several ways the members of a group do collective operations.
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

// One way, as a process offers it to the others.
struct CollectiveKind {
  // gloo; nccl, and what of it must be the same with all members, its version: by that name they
  // recognise each other.
  std::string name;
  // What no two members may share in this way of doing it, as a message would name it: a GPU.
  // Empty: nothing.
  std::string exclusive;
  CollectiveFactory make;
  // How long a member waits for the others' introductions once it has its own, and then until all
  // are connected.
  MonotonicDuration connect_timeout = std::chrono::seconds(15);
};

// What a process offers, in the order of preference, as one text for the others; all processes
// prefer in the same order.
std::string OfferOf(absl::Span<const CollectiveKind> kinds);

// A member as the others see it when a group forms.
struct OfferingMember {
  std::string node;
  // It has trained with others, who are not to suffer for somebody who joins them.
  bool has_state = false;
  std::string offer;
};

// The first kind that all members offer and in which no two share what they may not; the same on
// all members. A member that is alone takes the last one that it offers, which needs least.
//
// Where there is none, says who offers what: UNAVAILABLE for those who stay, and are to form
// another group, INVALID_ARGUMENT for the others, whom no such group will take. Members are counted
// in one after the other, those with state first, then in the order of their places; whoever leaves
// those before it without a kind does not stay. So somebody always does, if anybody offers
// anything.
//
// REQUIRES: place < members.size().
absl::StatusOr<std::string> ChooseKind(absl::Span<const OfferingMember> members, size_t place);

// Why it is not a kind that the member would rather have: whom that one does not suit. Empty if it
// is its first.
std::string WhyNotFirst(absl::Span<const OfferingMember> members, size_t place,
                        absl::string_view chosen);

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_COLLECTIVE_KIND_H_
