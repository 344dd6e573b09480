#include "worker/data/readers/sample_reader.h"

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"

namespace pawl {

absl::Status BadSamples::Add(uint64_t count, const std::string& example) {
  if (count == 0) return absl::OkStatus();
  count_ += count;
  if (shown_.size() < kMaxShown) shown_.push_back(example);
  if (count_ <= limit_) return absl::OkStatus();
  if (limit_ == 0) return absl::InvalidArgumentError(absl::StrCat(example, remedy_));
  return absl::InvalidArgumentError(
      absl::StrCat("more than ", limit_,
                   " samples are malformed (data.max_bad_samples); the first: ", shown_.front()));
}

absl::Status ReadSamples(SampleReader& reader, absl::string_view file, SampleStore* store,
                         BadSamples* bad) {
  for (;;) {
    const absl::StatusOr<bool> more = reader.Next(store);
    if (!more.ok()) {
      if (!reader.IsAtSample()) return more.status();
      PAWL_RETURN_IF_ERROR(bad->Add(1, std::string(more.status().message())));
      continue;
    }
    if (!*more) return absl::OkStatus();
    PAWL_RETURN_IF_ERROR(store->CheckLimits(file));
  }
}

}  // namespace pawl
