#include "client_lib/rpc/byte_buffer.h"

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "grpcpp/support/slice.h"

namespace pawl {
namespace {

// Shared by the slices of one buffer. Deletes itself with the last slice.
struct Loan {
  std::atomic<size_t> slices;
  std::shared_ptr<const void> owner;
  absl::AnyInvocable<void()> released;
};

void ReturnSlice(void* user_data) {
  Loan* const loan = static_cast<Loan*>(user_data);
  if (loan->slices.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const std::unique_ptr<Loan> last(loan);
  last->owner.reset();
  if (last->released) last->released();
}

}  // namespace

grpc::ByteBuffer ToByteBuffer(OutgoingMessage message, absl::AnyInvocable<void()> released) {
  const absl::Span<const ByteView::Fragment> fragments = message.bytes.fragments();
  if (fragments.empty()) {
    message.owner.reset();
    if (released) released();
    // A buffer without slices is invalid; one with an empty slice is valid.
    grpc::Slice empty;
    return grpc::ByteBuffer(&empty, 1);
  }
  Loan* const loan = new Loan{{fragments.size()}, std::move(message.owner), std::move(released)};
  absl::InlinedVector<grpc::Slice, 16> slices;
  slices.reserve(fragments.size());
  for (const ByteView::Fragment& fragment : fragments) {
    slices.emplace_back(const_cast<char*>(fragment.data()), fragment.size(), &ReturnSlice, loan);
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

IncomingMessage FromByteBuffer(const grpc::ByteBuffer& buffer) {
  auto slices = std::make_shared<std::vector<grpc::Slice>>();
  IncomingMessage message;
  if (!buffer.Valid() || !buffer.Dump(slices.get()).ok()) return message;
  // Short slices contain their bytes, so they must not move from here on.
  for (const grpc::Slice& slice : *slices) message.bytes.Append(slice.begin(), slice.size());
  message.owner = std::move(slices);
  return message;
}

}  // namespace pawl
