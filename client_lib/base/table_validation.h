// Validation of table specs, both from users and from peers.
#ifndef PAWL_CLIENT_LIB_BASE_TABLE_VALIDATION_H_
#define PAWL_CLIENT_LIB_BASE_TABLE_VALIDATION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/limits.h"
#include "proto/types.pb.h"

namespace pawl {

inline constexpr size_t kMaxTableNameBytes = 128;
inline constexpr int kMaxTableDimensions = 8;
// How far the normal initializers may deviate from the mean, in standard deviations.
inline constexpr double kMaxNormalDeviations = 7.0;

// INVALID_ARGUMENT naming the field (after `context`, such as "optimizer"), its value, and the
// valid values.
absl::Status ValidateOptimizer(const Optimizer& optimizer, absl::string_view context);
// Validates the table's initializer, which may depend on the table's shape.
absl::Status ValidateInitializer(const TableSpec& table, absl::string_view context);
// Validates everything except the id.
absl::Status ValidateTableSpec(const TableSpec& table);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_TABLE_VALIDATION_H_
