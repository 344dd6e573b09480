// Messages between the replicas of a partition. The first two bytes select the decoder and the
// fragment size; the rest is the message. Protobuf must read an accepted message in the same way.
// A refused message must be refused as INVALID_ARGUMENT.
#include <cstdint>
#include <string>

#include "server/replication/log_entry.h"
#include "tests/fuzz/fuzz_check.h"

namespace pawl {
namespace {

std::string StringOf(const ByteView& bytes) {
  std::string text(bytes.size(), '\0');
  bytes.CopyTo(text.data());
  return text;
}

// Whether the message is refused. REQUIRES: protobuf accepts what is not.
template <typename Message>
bool IsRefused(const std::string& bytes, const absl::Status& status, Message& expected) {
  const bool parsed = expected.ParseFromString(bytes);
  if (status.ok()) {
    FuzzCheck(parsed, "protobuf accepts it");
    return false;
  }
  FuzzCheck(absl::IsInvalidArgument(status), "refused as INVALID_ARGUMENT");
  return true;
}

void DecodeSnapshotPiece(const std::string& bytes, const ByteView& message) {
  InstallSnapshotRequest actual, expected;
  ByteView data;
  const absl::Status status = DecodeInstallSnapshotRequest(message, actual, data);
  if (IsRefused(bytes, status, expected)) return;
  FuzzCheck(StringOf(data) == expected.data(), "the data is equal");
  expected.clear_data();
  FuzzCheck(actual.SerializeAsString() == expected.SerializeAsString(), "fields are equal");
}

// The entries themselves are read later, so an accepted request may be one that protobuf refuses.
void DecodeEntries(const std::string& bytes, const ByteView& message) {
  ReplicateRequest expected;
  const bool parsed = expected.ParseFromString(bytes);
  const absl::StatusOr<ReplicateRequestView> view = DecodeReplicateRequest(message);
  if (!view.ok()) {
    FuzzCheck(absl::IsInvalidArgument(view.status()), "refused as INVALID_ARGUMENT");
    return;
  }
  if (!parsed) return;
  FuzzCheck(static_cast<int>(view->entries.size()) == expected.entries_size(), "as many entries");
  for (int i = 0; i < expected.entries_size(); ++i) {
    LogEntry entry;
    FuzzCheck(entry.ParseFromString(StringOf(view->entries[static_cast<size_t>(i)])) &&
                  entry.SerializeAsString() == expected.entries(i).SerializeAsString(),
              "entries are equal");
  }
}

void DecodeEntry(const std::string& bytes, const ByteView& message) {
  LogEntry expected;
  const absl::StatusOr<ChangeView> change = DecodeLogEntry(message);
  if (IsRefused(bytes, change.status(), expected)) return;
  FuzzCheck(change->index == expected.index() && change->partition == expected.partition() &&
                change->term == expected.term(),
            "the place is equal");
  const OutgoingMessage encoded = EncodeLogEntry(*change, nullptr);
  const absl::StatusOr<ChangeView> again = DecodeLogEntry(encoded.bytes);
  FuzzCheck(again.ok(), "what is encoded can be read");
  FuzzCheck(StringOf(EncodeLogEntry(*again, nullptr).bytes) == StringOf(encoded.bytes),
            "encoding it again gives the same bytes");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  const Fragments fragments(bytes, 1 + data[1]);
  switch (data[0] % 3) {
    case 0:
      DecodeSnapshotPiece(bytes, fragments.view());
      break;
    case 1:
      DecodeEntries(bytes, fragments.view());
      break;
    case 2:
      DecodeEntry(bytes, fragments.view());
      break;
  }
  return 0;
}

}  // namespace pawl
