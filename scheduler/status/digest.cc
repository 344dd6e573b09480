#include "scheduler/status/digest.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client_lib/base/bytes.h"
#include "client_lib/base/crc32c.h"

namespace pawl {

absl::StatusOr<uint32_t> CombineDigests(const std::map<uint32_t, std::string>& table_names,
                                        const std::vector<PartitionDigest>& digests) {
  std::map<std::pair<std::string, uint32_t>, const PartitionDigest*> ordered;
  for (const PartitionDigest& digest : digests) {
    if (digest.rows() == 0) continue;
    const auto name = table_names.find(digest.table());
    if (name == table_names.end()) {
      return absl::InternalError(
          absl::StrCat("a server reports rows of the unknown table ", digest.table()));
    }
    if (!ordered.emplace(std::make_pair(name->second, digest.partition()), &digest).second) {
      return absl::InternalError(absl::StrCat("partition ", digest.partition(), " of table ",
                                              name->second, " is reported twice"));
    }
  }
  uint32_t crc = 0;
  for (const auto& [key, digest] : ordered) {
    std::string record = key.first;
    record.push_back('\0');
    AppendNumber<uint32_t>(record, key.second);
    AppendNumber<uint32_t>(record, digest->crc32c());
    AppendNumber<uint64_t>(record, digest->rows());
    crc = Crc32c(crc, record.data(), record.size());
  }
  return crc;
}

std::string DigestText(uint32_t digest) { return absl::StrFormat("%08x", digest); }

}  // namespace pawl
