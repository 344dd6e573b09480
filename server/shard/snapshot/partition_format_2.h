// What the writer and the reader of snapshots share: partition_snapshot_format.md.
#ifndef PAWL_SERVER_SHARD_SNAPSHOT_PARTITION_FORMAT_2_H_
#define PAWL_SERVER_SHARD_SNAPSHOT_PARTITION_FORMAT_2_H_

#include <bit>
#include <cstddef>
#include <cstdint>

namespace pawl::format_2 {

static_assert(std::endian::native == std::endian::little,
              "numbers are saved as they lie in memory");

inline constexpr char kMagic[8] = {'P', 'A', 'W', 'L', 'P', 'A', 'R', 'T'};
inline constexpr uint32_t kFormat = 2;
inline constexpr size_t kHeaderBytes = sizeof(kMagic) + sizeof(kFormat);
inline constexpr size_t kSectionHeaderBytes = 8;
// Bodies are cut when they have reached it.
inline constexpr size_t kSectionBytes = size_t{64} << 10;

// Of a section that a reader that does not know its kind may pass over.
inline constexpr uint8_t kSkippable = 1;

enum class Kind : uint8_t {
  kJob = 1,
  kState = 2,
  kRanks = 3,
  kClients = 4,
  kTable = 5,
  kRows = 6,
  kBest = 7,
  kStep = 8,
  kSums = 9,
  kEarly = 10,
  kEnd = 11,
  kTerms = 12,
  // 13 to 17 are reserved: see the document.
};

// What follows in the entry of a rank.
inline constexpr uint8_t kReleased = 1;
inline constexpr uint8_t kCountsFrom = 2;
inline constexpr uint8_t kWindow = 4;
inline constexpr uint8_t kNextOrdinal = 8;

}  // namespace pawl::format_2

#endif  // PAWL_SERVER_SHARD_SNAPSHOT_PARTITION_FORMAT_2_H_
