// The system headers that many sources include, precompiled once for all of them (see BUILD). No
// source includes this file, and none may rely on it: each source includes every header that it
// uses, because most configurations build without this one.
//
// Each header here costs every compilation some hundredths of a second: a header that fewer than
// one source in seven includes, directly or not, is not worth it. Measured: <filesystem>, <future>,
// <random>, gtest, gRPC and nlohmann/json are not.
#ifndef PAWL_THIRD_PARTY_PRECOMPILED_COMMON_HEADERS_H_
#define PAWL_THIRD_PARTY_PRECOMPILED_COMMON_HEADERS_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "fmt/format.h"
#include "google/protobuf/extension_set.h"
#include "google/protobuf/generated_message_reflection.h"
#include "google/protobuf/generated_message_util.h"
#include "google/protobuf/map.h"
#include "google/protobuf/map_entry.h"
#include "google/protobuf/map_field.h"
#include "google/protobuf/message.h"
#include "google/protobuf/repeated_field.h"
#include "google/protobuf/unknown_field_set.h"

// spdlog's templates call this one, and so each source that logs would compile all that fmt can
// format. libfmt.so has it.
extern template void fmt::detail::vformat_to<char>(fmt::detail::buffer<char>&, fmt::string_view,
                                                   fmt::format_args, fmt::detail::locale_ref);

#endif  // PAWL_THIRD_PARTY_PRECOMPILED_COMMON_HEADERS_H_
