// Messages as JSON, for programs without protobuf.
#ifndef PAWL_CLIENT_LIB_C_JSON_H_
#define PAWL_CLIENT_LIB_C_JSON_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"

namespace pawl::c {

// With the names of the proto files, and fields at their default left out.
std::string ToJson(const google::protobuf::Message& message);

// Returns INVALID_ARGUMENT, which names `what`, if the text is not a message of this type.
absl::Status ReadJson(const char* json, absl::string_view what, google::protobuf::Message& message);

template <typename Message>
absl::StatusOr<Message> FromJson(const char* json, absl::string_view what) {
  Message message;
  const absl::Status status = ReadJson(json, what, message);
  if (!status.ok()) return status;
  return message;
}

}  // namespace pawl::c

#endif  // PAWL_CLIENT_LIB_C_JSON_H_
