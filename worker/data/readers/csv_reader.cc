#include "worker/data/readers/csv_reader.h"

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "worker/data/readers/csv_features.h"
#include "worker/data/readers/csv_record_reader.h"

namespace pawl {

absl::Status ReadCsv(ByteSource& source, const std::string& name, const CsvSpec& spec,
                     SampleStore* store) {
  PAWL_ASSIGN_OR_RETURN(CsvFeatures features, CsvFeatures::Create(spec));
  store->shape = features.shape();
  CsvRecordReader records(source, name);
  PAWL_ASSIGN_OR_RETURN(const bool has_header, records.Next());
  if (!has_header)
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": is empty; its first line must be a header"));
  PAWL_RETURN_IF_ERROR(features.Bind(records));
  CsvSample sample;
  for (;;) {
    PAWL_ASSIGN_OR_RETURN(const bool more, records.Next());
    if (!more) return absl::OkStatus();
    PAWL_RETURN_IF_ERROR(features.Apply(records, &sample));
    store->labels.push_back(sample.label);
    store->numerics.insert(store->numerics.end(), sample.numerics.begin(), sample.numerics.end());
    for (const uint64_t key : sample.keys) store->entries.push_back(store->Intern(key));
    PAWL_RETURN_IF_ERROR(store->CheckLimits(name));
  }
}

}  // namespace pawl
