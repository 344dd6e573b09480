// The training data's files with their indexes, which are made where they are missing.
#ifndef PAWL_WORKER_DATA_STREAM_INDEXED_FILES_H_
#define PAWL_WORKER_DATA_STREAM_INDEXED_FILES_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/data/stream/block_index.h"

namespace pawl {

struct IndexedFile {
  std::string path;
  std::string index_path;
  uint64_t dictionaries_begin = 0;
  BlockIndex index;
};

struct IndexOptions {
  // Where indexes are. Empty: each beside its file.
  std::string dir = {};
  // Make the index of a file that has changed again. Otherwise such a file is refused.
  bool refresh = false;
};

inline constexpr std::chrono::hours kMaxIndexWait{12};

// The file of the index of `path` for these settings.
std::string IndexPathOf(const std::string& path, const std::string& dir, uint64_t settings);

// Loads the indexes of the files. Makes those that are missing, in parallel: several processes that
// do this at once share the work. FAILED_PRECONDITION, naming the file, for a file that has changed
// since its index was made. DEADLINE_EXCEEDED if
// another process holds an index for kMaxIndexWait and completes none. Other errors are those of
// MakeBlockIndex and of the file system.
absl::StatusOr<std::vector<IndexedFile>> OpenIndexedFiles(const Data& spec,
                                                          const std::vector<std::string>& paths,
                                                          const IndexOptions& options);

// The identity of the data: 16 hexadecimal digits. It depends on the content and order of the
// files, not on their names.
std::string DataId(const std::vector<IndexedFile>& files);

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_STREAM_INDEXED_FILES_H_
