// Bytes in memory: a view of bytes that arrived in several fragments, and little-endian numbers.
#ifndef PAWL_CLIENT_LIB_BASE_BYTES_H_
#define PAWL_CLIENT_LIB_BASE_BYTES_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"

namespace pawl {

// A sequence of bytes in fragments of memory that the view does not own. The memory must outlive
// the view. A field of a received message is split wherever a socket read ended, so a number may
// start in one fragment and end in the next, and nothing is aligned.
//
// Not thread-safe. Copies are cheap and share the memory.
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

  // Calls visit(const char* data, size_t count) for runs of `count` whole granules of
  // `granule_bytes` each, in order, until the whole view is covered. A granule that spans fragments
  // is copied to `scratch` and visited alone.
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

// Copies the bytes of a view out, front to back. The view must outlive it.
class ByteCursor {
 public:
  explicit ByteCursor(const ByteView& view) : rest_(view.fragments()) {}

  // Copies the next `size` bytes to `out`. REQUIRES: the view has them.
  void Read(void* out, size_t size) {
    char* end = static_cast<char*>(out);
    while (size > 0) {
      const ByteView::Fragment& fragment = rest_.front();
      const size_t taken = std::min(size, fragment.size() - offset_);
      std::memcpy(end, fragment.data() + offset_, taken);
      end += taken;
      size -= taken;
      offset_ += taken;
      if (offset_ < fragment.size()) continue;
      rest_.remove_prefix(1);
      offset_ = 0;
    }
  }

 private:
  absl::Span<const ByteView::Fragment> rest_;
  size_t offset_ = 0;  // in the first fragment of rest_
};

// The functions below read and write unaligned little-endian numbers, as files and digests hold
// them.
static_assert(std::endian::native == std::endian::little, "numbers are copied without conversion");

// Writes `value` at `out` and returns the position after it.
template <typename Unsigned>
char* PutNumber(char* out, Unsigned value) {
  std::memcpy(out, &value, sizeof(value));
  return out + sizeof(value);
}

template <typename Unsigned>
void AppendNumber(std::string& out, Unsigned value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Reads the number at `in` and advances `in` past it.
template <typename Unsigned>
Unsigned TakeNumber(const char*& in) {
  Unsigned value;
  std::memcpy(&value, in, sizeof(value));
  in += sizeof(value);
  return value;
}

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_BYTES_H_
