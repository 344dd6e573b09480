// The IDX format of the MNIST data sets.
#ifndef PAWL_WORKER_DATA_READERS_IDX_READER_H_
#define PAWL_WORKER_DATA_READERS_IDX_READER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/data/readers/byte_source.h"
#include "worker/data/sample_store.h"

namespace pawl {

// The name of the label file of `image_path`, with "labels-idx1" instead of "images-idx3".
// INVALID_ARGUMENT if the file's name lacks "images-idx3".
absl::StatusOr<std::string> IdxLabelPath(const std::string& image_path);

// Appends the images and labels to *store: pixels as numerics, classes as labels. Both files hold
// unsigned bytes. Images have 2 to 4 dimensions, the first being their number; labels have
// one. INVALID_ARGUMENT, naming the file and the problem, for another type, a length that
// contradicts the header, or files that do not match.
absl::Status ReadIdx(ByteSource& images, const std::string& image_name, ByteSource& labels,
                     const std::string& label_name, SampleStore* store);

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_READERS_IDX_READER_H_
