// Limits that servers, clients and the scheduler must agree on.
#ifndef PAWL_CLIENT_LIB_BASE_LIMITS_H_
#define PAWL_CLIENT_LIB_BASE_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace pawl {

// Partitions of a job. One costs a lock and some KiB on its server; placement is a list of this
// length in every routing table.
inline constexpr uint32_t kMaxPartitions = 65536;
// RoutingTable.primary of a partition that nobody can serve.
inline constexpr uint32_t kNoPrimary = UINT32_MAX;
// Clients are numbered 0 to kMaxClients - 1: servers keep a push window for each number.
inline constexpr uint32_t kMaxClients = 1024;
// Widest row of a sparse table, in elements.
inline constexpr uint32_t kMaxRowWidth = 4096;
// Of a dense table: 256 GiB of weights, more than any server set of today holds, and its byte count
// stays far from 2^64.
inline constexpr uint64_t kMaxDenseElements = uint64_t{1} << 36;
// How far ahead of the first missing ordinal a push may be: servers recognise within it what they
// have taken.
inline constexpr size_t kPushWindow = 1024;

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_LIMITS_H_
