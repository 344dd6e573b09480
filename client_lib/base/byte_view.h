// Bytes that were received in pieces, without putting them together.
#ifndef PAWL_CLIENT_LIB_BASE_BYTE_VIEW_H_
#define PAWL_CLIENT_LIB_BASE_BYTE_VIEW_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"

namespace pawl {

// A sequence of bytes made of fragments of memory that belongs to somebody else
// and must outlive the view. A field of a message from the socket lies wherever
// the socket's reads cut it, so a number may begin in one fragment and end in the
// next, and nothing is aligned.
//
// Not thread-safe; copies are cheap and share the memory.
class ByteView {
 public:
  using Fragment = absl::Span<const char>;

  ByteView() = default;
  ByteView(const void* data, size_t size) { Append(data, size); }

  void Append(const void* data, size_t size) {
    if (size == 0) return;
    fragments_.push_back(Fragment(static_cast<const char*>(data), size));
    size_ += size;
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  absl::Span<const Fragment> fragments() const { return fragments_; }

  // Calls visit(const char* data, size_t count) for runs of `count` whole granules
  // of `granule_bytes` each, in order, covering all of the view. A granule that
  // two fragments share is put together in `scratch` and visited alone.
  // REQUIRES: size() is a multiple of granule_bytes; scratch holds granule_bytes.
  template <typename Visit>
  void ForEachRun(size_t granule_bytes, char* scratch, Visit visit) const {
    size_t in_scratch = 0;
    for (Fragment rest : fragments_) {
      if (in_scratch > 0) {
        const size_t taken = std::min(granule_bytes - in_scratch, rest.size());
        std::memcpy(scratch + in_scratch, rest.data(), taken);
        in_scratch += taken;
        rest.remove_prefix(taken);
        if (in_scratch < granule_bytes) continue;
        visit(static_cast<const char*>(scratch), size_t{1});
        in_scratch = 0;
      }
      if (const size_t whole = rest.size() / granule_bytes; whole > 0) {
        visit(rest.data(), whole);
        rest.remove_prefix(whole * granule_bytes);
      }
      if (!rest.empty()) {
        std::memcpy(scratch, rest.data(), rest.size());
        in_scratch = rest.size();
      }
    }
  }

  // REQUIRES: `out` holds size() bytes.
  void CopyTo(void* out) const {
    char* end = static_cast<char*>(out);
    for (const Fragment& fragment : fragments_) {
      std::memcpy(end, fragment.data(), fragment.size());
      end += fragment.size();
    }
  }

 private:
  absl::InlinedVector<Fragment, 2> fragments_;
  size_t size_ = 0;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_BYTE_VIEW_H_
