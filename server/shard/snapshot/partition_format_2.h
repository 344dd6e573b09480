// Constants shared by the writer and the reader of snapshots; see partition_snapshot_format.md.
#ifndef PAWL_SERVER_SHARD_SNAPSHOT_PARTITION_FORMAT_2_H_
#define PAWL_SERVER_SHARD_SNAPSHOT_PARTITION_FORMAT_2_H_

#include <bit>
#include <cstddef>
#include <cstdint>

namespace pawl::format_2 {

static_assert(std::endian::native == std::endian::little,
              "numbers are saved in their memory layout");

inline constexpr char kMagic[8] = {'P', 'A', 'W', 'L', 'P', 'A', 'R', 'T'};
inline constexpr uint32_t kFormat = 2;
inline constexpr size_t kHeaderBytes = sizeof(kMagic) + sizeof(kFormat);
inline constexpr size_t kSectionHeaderBytes = 8;
// The writer ends a section when its body has reached this size.
inline constexpr size_t kSectionBytes = size_t{64} << 10;

// Flag of a section that a reader may skip if it does not know the kind.
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
  kRates = 18,
  kSquares = 19,
};

// Flag in the entry of a rank.
inline constexpr uint8_t kReleased = 1;
inline constexpr uint8_t kCountsFrom = 2;
inline constexpr uint8_t kWindow = 4;
inline constexpr uint8_t kNextOrdinal = 8;

}  // namespace pawl::format_2

#endif  // PAWL_SERVER_SHARD_SNAPSHOT_PARTITION_FORMAT_2_H_
