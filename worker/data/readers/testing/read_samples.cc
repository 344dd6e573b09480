#include "worker/data/readers/testing/read_samples.h"

#include <memory>

#include "client_lib/base/status_macros.h"
#include "worker/data/readers/csv_reader.h"
#include "worker/data/readers/libsvm_reader.h"
#include "worker/data/readers/sample_reader.h"

namespace pawl {

absl::Status ReadCsv(ByteSource& source, const std::string& name, const CsvSpec& spec,
                     SampleStore* store) {
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<CsvReader> reader,
                        CsvReader::Open(source, name, spec));
  store->shape = reader->shape();
  BadSamples bad;
  return ReadSamples(*reader, name, store, &bad);
}

absl::Status ReadLibsvm(ByteSource& source, const std::string& name, uint32_t fields,
                        SampleStore* store) {
  if (store->sample_begin.empty()) store->sample_begin.push_back(0);
  LibsvmReader reader(source, name);
  BadSamples bad;
  PAWL_RETURN_IF_ERROR(ReadSamples(reader, name, store, &bad));
  PAWL_ASSIGN_OR_RETURN(store->shape.field_count,
                        LibsvmFields(fields, reader.most_entries(), name));
  return absl::OkStatus();
}

}  // namespace pawl
