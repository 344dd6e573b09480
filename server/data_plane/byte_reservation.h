// A reservation of bytes from a limited total.
#ifndef PAWL_SERVER_DATA_PLANE_BYTE_RESERVATION_H_
#define PAWL_SERVER_DATA_PLANE_BYTE_RESERVATION_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace pawl {

// Counts the bytes of one request in a total until it is destroyed. The total is shared, because
// gRPC may hold a message after its server has ended. Thread-safe.
class ByteReservation {
 public:
  // Reserves `bytes` of `total`; null if the total would exceed `limit`.
  static std::shared_ptr<ByteReservation> Take(const std::shared_ptr<std::atomic<size_t>>& total,
                                               size_t limit, size_t bytes) {
    const size_t before = total->fetch_add(bytes, std::memory_order_relaxed);
    auto reservation = std::make_shared<ByteReservation>(total, bytes);
    // A single request is always accepted, however large; it would never fit otherwise.
    if (before > 0 && before + bytes > limit) return nullptr;
    return reservation;
  }

  // Returns an owner that keeps `memory` and its reservation alive.
  static std::shared_ptr<const void> Owner(std::shared_ptr<const void> memory,
                                           std::shared_ptr<const ByteReservation> reservation) {
    using Both = std::pair<std::shared_ptr<const void>, std::shared_ptr<const ByteReservation>>;
    return std::make_shared<const Both>(std::move(memory), std::move(reservation));
  }

  // For bytes that `total` already includes.
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
