// A share of a limited number of bytes.
#ifndef PAWL_SERVER_DATA_PLANE_BYTE_RESERVATION_H_
#define PAWL_SERVER_DATA_PLANE_BYTE_RESERVATION_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace pawl {

// Bytes of one request, counted in a total until it is destroyed; the total is shared, since gRPC
// may hold a message a little longer than its server lives. Thread-safe.
class ByteReservation {
 public:
  // Of `total`, which is to be at most `limit`; null if it would be more.
  static std::shared_ptr<ByteReservation> Take(const std::shared_ptr<std::atomic<size_t>>& total,
                                               size_t limit, size_t bytes) {
    const size_t before = total->fetch_add(bytes, std::memory_order_relaxed);
    auto reservation = std::make_shared<ByteReservation>(total, bytes);
    // One request is always taken, however large, or it would never be.
    if (before > 0 && before + bytes > limit) return nullptr;
    return reservation;
  }

  // Until whoever keeps what this returns has let go of it, `memory` is kept and counted.
  static std::shared_ptr<const void> Owner(std::shared_ptr<const void> memory,
                                           std::shared_ptr<const ByteReservation> reservation) {
    using Both = std::pair<std::shared_ptr<const void>, std::shared_ptr<const ByteReservation>>;
    return std::make_shared<const Both>(std::move(memory), std::move(reservation));
  }

  // Of bytes that `total` has counted already.
  ByteReservation(std::shared_ptr<std::atomic<size_t>> total, size_t bytes)
      : total_(std::move(total)), bytes_(bytes) {}
  ~ByteReservation() { total_->fetch_sub(bytes_, std::memory_order_relaxed); }
  ByteReservation(const ByteReservation&) = delete;
  ByteReservation& operator=(const ByteReservation&) = delete;

 private:
  const std::shared_ptr<std::atomic<size_t>> total_;
  const size_t bytes_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_DATA_PLANE_BYTE_RESERVATION_H_
