// The files that the `data` section of a job names.
#ifndef PAWL_CLIENT_LIB_JOB_DATA_FILES_H_
#define PAWL_CLIENT_LIB_JOB_DATA_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/repeated_field.h"
#include "proto/job.pb.h"

namespace pawl {

// The end of the names of indexes of data files, which may lie beside the data.
inline constexpr char kDataIndexSuffix[] = ".pawlindex";
// The same for an index that a process is writing.
inline constexpr char kUnfinishedIndexSuffix[] = ".pawlindex.tmp";

// Replaces folders and globs in `paths`, the job's field `field`, by the files that they stand for,
// as Data.train says. An existing file is taken even if its name looks like a glob. For IDX,
// folders and globs stand for files of images only.
//
// Paths of files that do not exist are kept, so that opening them names them. NOT_FOUND, naming the
// field, for a glob or folder without files; INVALID_ARGUMENT for a file that is named twice.
absl::StatusOr<std::vector<std::string>> ExpandDataFiles(
    const std::string& field, const google::protobuf::RepeatedPtrField<std::string>& paths,
    DataFormat format);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_JOB_DATA_FILES_H_
