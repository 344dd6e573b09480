#include "server/export/row_spool.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

absl::string_view BytesOf(absl::Span<const uint64_t> keys) {
  return {reinterpret_cast<const char*>(keys.data()), keys.size() * sizeof(uint64_t)};
}

// The part of one run that is read at a time.
struct Cursor {
  RowSpool::Run rest;
  std::vector<uint64_t> keys;
  std::vector<char> rows;
  size_t next = 0;
};

// Orders runs by their lowest key.
struct Head {
  uint64_t key = 0;
  size_t cursor = 0;
  bool operator<(const Head& other) const { return key > other.key; }
};

}  // namespace

absl::StatusOr<std::unique_ptr<RowSpool>> RowSpool::Create(Env& env, const std::string& path) {
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, env.Create(path));
  return std::unique_ptr<RowSpool>(new RowSpool(env, path, std::move(file)));
}

absl::StatusOr<uint64_t> RowSpool::Add(absl::string_view bytes) {
  const uint64_t begin = file_->size();
  PAWL_RETURN_IF_ERROR(file_->Append(bytes));
  return begin;
}

absl::StatusOr<RowSpool::Run> RowSpool::AddRun(
    absl::Span<const uint64_t> keys, size_t row_bytes,
    absl::FunctionRef<void(absl::Span<const uint64_t>, char*)> read) {
  Run run;
  run.count = keys.size();
  PAWL_ASSIGN_OR_RETURN(run.keys_begin, Add(BytesOf(keys)));
  run.rows_begin = file_->size();
  const size_t chunk = std::max<size_t>(kSpoolChunkBytes / row_bytes, 1);
  std::vector<char> rows;
  for (size_t begin = 0; begin < keys.size(); begin += chunk) {
    const absl::Span<const uint64_t> part = keys.subspan(begin, chunk);
    rows.resize(part.size() * row_bytes);
    read(part, rows.data());
    PAWL_RETURN_IF_ERROR(Add(absl::string_view(rows.data(), rows.size())).status());
  }
  return run;
}

absl::Status RowSpool::EndAdding() {
  PAWL_RETURN_IF_ERROR(file_->Close());
  PAWL_ASSIGN_OR_RETURN(reader_, env_.OpenForRead(path_));
  return absl::OkStatus();
}

absl::Status RowSpool::Read(uint64_t begin, absl::Span<char> out) const {
  PAWL_ASSIGN_OR_RETURN(const size_t read, reader_->Read(begin, out));
  if (read == out.size()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(path_, " ends at offset ", begin + read, ", before its written end"));
}

absl::Status RowSpool::Copy(uint64_t begin, uint64_t bytes, Sink sink) const {
  std::vector<char> chunk;
  while (bytes > 0) {
    chunk.resize(std::min<uint64_t>(bytes, kSpoolChunkBytes));
    PAWL_RETURN_IF_ERROR(Read(begin, absl::MakeSpan(chunk)));
    PAWL_RETURN_IF_ERROR(sink(absl::string_view(chunk.data(), chunk.size())));
    begin += chunk.size();
    bytes -= chunk.size();
  }
  return absl::OkStatus();
}

absl::Status RowSpool::Merge(absl::Span<const Run> runs, size_t row_bytes, Sink keys,
                             Sink rows) const {
  if (runs.empty()) return absl::OkStatus();
  const size_t ahead =
      std::max<size_t>(kMergeBytes / runs.size() / (sizeof(uint64_t) + row_bytes), 1);
  std::vector<Cursor> cursors(runs.size());
  std::priority_queue<Head> heads;
  // Reads the next rows of the run, if any.
  const auto fill = [&](size_t c) -> absl::Status {
    Cursor& cursor = cursors[c];
    const auto count = static_cast<size_t>(std::min<uint64_t>(cursor.rest.count, ahead));
    if (count == 0) return absl::OkStatus();
    cursor.keys.resize(count);
    cursor.rows.resize(count * row_bytes);
    PAWL_RETURN_IF_ERROR(Read(
        cursor.rest.keys_begin,
        absl::MakeSpan(reinterpret_cast<char*>(cursor.keys.data()), count * sizeof(uint64_t))));
    PAWL_RETURN_IF_ERROR(Read(cursor.rest.rows_begin, absl::MakeSpan(cursor.rows)));
    cursor.rest.keys_begin += count * sizeof(uint64_t);
    cursor.rest.rows_begin += cursor.rows.size();
    cursor.rest.count -= count;
    cursor.next = 0;
    heads.push({cursor.keys[0], c});
    return absl::OkStatus();
  };
  for (size_t c = 0; c < runs.size(); ++c) {
    cursors[c].rest = runs[c];
    PAWL_RETURN_IF_ERROR(fill(c));
  }
  std::vector<uint64_t> out_keys;
  std::string out_rows;
  const auto hand_on = [&]() -> absl::Status {
    PAWL_RETURN_IF_ERROR(keys(BytesOf(out_keys)));
    PAWL_RETURN_IF_ERROR(rows(out_rows));
    out_keys.clear();
    out_rows.clear();
    return absl::OkStatus();
  };
  while (!heads.empty()) {
    const Head head = heads.top();
    heads.pop();
    Cursor& cursor = cursors[head.cursor];
    out_keys.push_back(head.key);
    out_rows.append(cursor.rows.data() + cursor.next * row_bytes, row_bytes);
    if (++cursor.next < cursor.keys.size()) {
      heads.push({cursor.keys[cursor.next], head.cursor});
    } else {
      PAWL_RETURN_IF_ERROR(fill(head.cursor));
    }
    if (out_rows.size() >= kSpoolChunkBytes) PAWL_RETURN_IF_ERROR(hand_on());
  }
  return hand_on();
}

}  // namespace pawl
