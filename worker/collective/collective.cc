#include "worker/collective/collective.h"

namespace pawl {

size_t BytesOf(CollectiveType type) {
  switch (type) {
    case CollectiveType::kInt8:
    case CollectiveType::kUint8:
      return 1;
    case CollectiveType::kFloat16:
    case CollectiveType::kBfloat16:
      return 2;
    case CollectiveType::kInt32:
    case CollectiveType::kUint32:
    case CollectiveType::kFloat32:
      return 4;
    case CollectiveType::kInt64:
    case CollectiveType::kUint64:
    case CollectiveType::kFloat64:
      return 8;
  }
  return 0;
}

void Collective::AllReduceOnDevice(const void*, void*, size_t, CollectiveType, Reduction,
                                   MonotonicDuration, Done done) {
  done(absl::UnimplementedError("this collective does not accept device memory"));
}

}  // namespace pawl
