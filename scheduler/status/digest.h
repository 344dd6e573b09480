// The digest of a job's parameters, which identifies the model.
//
// CRC32C over one record for each (table, partition) that has rows or blocks, in ascending
// order of the table's name (as bytes), then of the partition:
//
//   the table's name       its bytes
//   0                      1 byte
//   partition              4 bytes, little-endian
//   crc32c                 4 bytes, little-endian: PartitionDigest.crc32c
//   rows                   8 bytes, little-endian: PartitionDigest.rows
//
// It contains neither table ids nor the placement: the digest does not depend on the number of
// servers or on the order in which tables were created. Without any rows it is 0, the CRC32C of
// nothing.
//
// Example: table "w" with partition 3, crc32c 0x01020304 and 5 rows gives the 18 bytes
//   77 00 03 00 00 00 04 03 02 01 05 00 00 00 00 00 00 00
#ifndef PAWL_SCHEDULER_STATUS_DIGEST_H_
#define PAWL_SCHEDULER_STATUS_DIGEST_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/server_control.pb.h"

namespace pawl {

// `table_names` by id. INTERNAL if a partition of a table occurs twice, or an unknown table has
// rows: servers and scheduler disagree.
absl::StatusOr<uint32_t> CombineDigests(const std::map<uint32_t, std::string>& table_names,
                                        const std::vector<PartitionDigest>& digests);

// Eight hexadecimal digits.
std::string DigestText(uint32_t digest);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STATUS_DIGEST_H_
