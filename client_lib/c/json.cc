#include "client_lib/c/json.h"

#include "google/protobuf/util/json_util.h"

namespace pawl::c {

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  // Every message that Pawl's peers send is valid UTF-8 and has no Any: this cannot fail.
  const auto status = google::protobuf::util::MessageToJsonString(message, &json, options);
  return status.ok() ? json : "{}";
}

absl::Status ReadJson(const char* json, absl::string_view what,
                      google::protobuf::Message& message) {
  if (json == nullptr) return absl::InvalidArgumentError(absl::StrCat(what, " is NULL"));
  const auto status = google::protobuf::util::JsonStringToMessage(json, &message);
  if (status.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      what, ": ", absl::string_view(status.message().data(), status.message().size())));
}

}  // namespace pawl::c
