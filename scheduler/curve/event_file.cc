#include "scheduler/curve/event_file.h"

#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "client_lib/base/crc32c.h"
#include "client_lib/base/status_macros.h"
#include "proto/tensorboard.pb.h"

namespace pawl {

absl::StatusOr<std::unique_ptr<EventFile>> EventFile::Create(Env& env, const std::string& folder,
                                                             double unix_s,
                                                             const std::string& suffix) {
  PAWL_RETURN_IF_ERROR(env.MakeFolder(folder));
  PAWL_ASSIGN_OR_RETURN(
      std::unique_ptr<WritableFile> file,
      env.Create(absl::StrFormat("%s/events.out.tfevents.%.0f.%s", folder, unix_s, suffix)));
  auto events = std::unique_ptr<EventFile>(new EventFile(std::move(file)));
  TensorBoardEvent first;
  first.set_wall_time(unix_s);
  first.set_file_version("brain.Event:2");
  PAWL_RETURN_IF_ERROR(events->Append(first.SerializeAsString()));
  return events;
}

absl::Status EventFile::Add(double unix_s, const CurvePoint& point) {
  TensorBoardEvent event;
  event.set_wall_time(point.unix_s > 0 ? point.unix_s : unix_s);
  event.set_step(static_cast<int64_t>(point.step));
  for (const auto& [tag, value] : point.values) {
    TensorBoardValue& added = *event.mutable_summary()->add_value();
    added.set_tag(tag);
    added.set_simple_value(static_cast<float>(value));
  }
  return Append(event.SerializeAsString());
}

absl::Status EventFile::Append(const std::string& event) {
  const uint64_t length = event.size();
  std::array<char, 12> head;
  const uint32_t head_crc = MaskedCrc32c(&length, sizeof(length));
  std::memcpy(head.data(), &length, sizeof(length));
  std::memcpy(head.data() + sizeof(length), &head_crc, sizeof(head_crc));
  const uint32_t crc = MaskedCrc32c(event.data(), event.size());
  const std::array<WritableFile::Fragment, 3> fragments = {
      WritableFile::Fragment(head.data(), head.size()),
      WritableFile::Fragment(event.data(), event.size()),
      WritableFile::Fragment(reinterpret_cast<const char*>(&crc), sizeof(crc))};
  return file_->Append(fragments);
}

}  // namespace pawl
