// The IDX format of the MNIST data sets.
#ifndef PAWL_WORKER_DATA_READERS_IDX_READER_H_
#define PAWL_WORKER_DATA_READERS_IDX_READER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/data/readers/byte_source.h"
#include "worker/data/sample_store.h"

namespace pawl {

// The name of the file with the labels of `image_path`: "labels-idx1" for
// "images-idx3" in the file's name. INVALID_ARGUMENT if that is not in it.
absl::StatusOr<std::string> IdxLabelPath(const std::string& image_path);

// Appends the images and labels to *store: pixels as numerics, classes as labels.
// Both files hold unsigned bytes, images in 2 to 4 dimensions of which the first
// counts them, labels in one. INVALID_ARGUMENT naming the file and what is wrong
// for another type, a length that is not what the header says, or files that do
// not belong together.
absl::Status ReadIdx(ByteSource& images, const std::string& image_name, ByteSource& labels,
                     const std::string& label_name, SampleStore* store);

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_READERS_IDX_READER_H_
