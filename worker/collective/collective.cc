#include "worker/collective/collective.h"

namespace pawl {

size_t BytesOf(CollectiveType type) {
  switch (type) {
    case CollectiveType::kInt64:
      return sizeof(int64_t);
    case CollectiveType::kFloat32:
      return sizeof(float);
  }
  return 0;
}

void Collective::AllReduceOnDevice(const void*, void*, size_t, CollectiveType, Reduction,
                                   MonotonicDuration, Done done) {
  done(absl::UnimplementedError("this collective does not accept device memory"));
}

}  // namespace pawl
