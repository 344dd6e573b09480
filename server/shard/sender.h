// The sender of a change.
#ifndef PAWL_SERVER_SHARD_SENDER_H_
#define PAWL_SERVER_SHARD_SENDER_H_

#include <cstdint>

namespace pawl {

struct Sender {
  enum class Kind { kLogicalWorker, kClient };
  Kind kind = Kind::kClient;
  uint32_t number = 0;  // a rank or a client number
  uint64_t incarnation = 0;
  uint64_t step = 0;  // logical workers only

  bool operator==(const Sender&) const = default;
};

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_SENDER_H_
