#include "client_lib/job/table_validation.h"

#include <cmath>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

absl::Status Refuse(absl::string_view context, absl::string_view field, double value, absl::string_view possible) {
  return absl::InvalidArgumentError(absl::StrCat(context, ".", field, " is ", value, "; it must be ", possible));
}

// Collects the first mistake of several fields of one message.
class FieldChecks {
 public:
  explicit FieldChecks(std::string context) : context_(std::move(context)) {}

  FieldChecks& Positive(absl::string_view field, float value) {
    return Check(field, value, std::isfinite(value) && value > 0, "a number above 0");
  }
  FieldChecks& NotNegative(absl::string_view field, float value) {
    return Check(field, value, std::isfinite(value) && value >= 0, "0 or a number above it");
  }
  FieldChecks& Finite(absl::string_view field, float value) {
    return Check(field, value, std::isfinite(value), "a finite number");
  }
  // In [0, 1).
  FieldChecks& Decay(absl::string_view field, float value) {
    return Check(field, value, value >= 0 && value < 1, "at least 0 and below 1");
  }
  FieldChecks& Check(absl::string_view field, double value, bool holds, absl::string_view possible) {
    if (status_.ok() && !holds) status_ = Refuse(context_, field, value, possible);
    return *this;
  }
  const absl::Status& status() const { return status_; }

 private:
  const std::string context_;
  absl::Status status_;
};

absl::Status ValidateSchedule(const LearningRateSchedule& schedule, const std::string& context) {
  switch (schedule.kind_case()) {
    case LearningRateSchedule::kStep:
      return FieldChecks(context + ".step")
          .Check("every_steps", static_cast<double>(schedule.step().every_steps()), schedule.step().every_steps() > 0,
                 "at least 1")
          .Positive("gamma", schedule.step().gamma())
          .status();
    case LearningRateSchedule::kCosine:
      return FieldChecks(context + ".cosine")
          .Check("total_steps", static_cast<double>(schedule.cosine().total_steps()), schedule.cosine().total_steps() > 0,
                 "at least 1")
          .Check("floor", schedule.cosine().floor(), schedule.cosine().floor() >= 0 && schedule.cosine().floor() <= 1,
                 "from 0 to 1")
          .status();
    case LearningRateSchedule::KIND_NOT_SET:
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

// A field that is not set takes its default, which is possible.
template <typename T, typename Has, typename Get>
float Given(const T& message, Has has, Get get, float otherwise) {
  return (message.*has)() ? (message.*get)() : otherwise;
}

absl::Status ValidateOptimizerKind(const Optimizer& optimizer, const std::string& context) {
#define PAWL_GIVEN(T, field, otherwise) Given(message, &T::has_##field, &T::field, otherwise)
  switch (optimizer.kind_case()) {
    case Optimizer::kSgd:
      return FieldChecks(context + ".sgd").Positive("learning_rate", optimizer.sgd().learning_rate()).status();
    case Optimizer::kMomentum: {
      const Optimizer::Momentum& message = optimizer.momentum();
      return FieldChecks(context + ".momentum")
          .Positive("learning_rate", message.learning_rate())
          .Decay("momentum", PAWL_GIVEN(Optimizer::Momentum, momentum, 0.9f))
          .status();
    }
    case Optimizer::kAdagrad: {
      const Optimizer::Adagrad& message = optimizer.adagrad();
      return FieldChecks(context + ".adagrad")
          .Positive("learning_rate", message.learning_rate())
          .NotNegative("initial_accumulator", PAWL_GIVEN(Optimizer::Adagrad, initial_accumulator, 0.1f))
          .NotNegative("epsilon", PAWL_GIVEN(Optimizer::Adagrad, epsilon, 1e-10f))
          .status();
    }
    case Optimizer::kRowwiseAdagrad: {
      const Optimizer::RowWiseAdagrad& message = optimizer.rowwise_adagrad();
      return FieldChecks(context + ".rowwise_adagrad")
          .Positive("learning_rate", message.learning_rate())
          .NotNegative("initial_accumulator", PAWL_GIVEN(Optimizer::RowWiseAdagrad, initial_accumulator, 0.1f))
          .NotNegative("epsilon", PAWL_GIVEN(Optimizer::RowWiseAdagrad, epsilon, 1e-10f))
          .status();
    }
    case Optimizer::kRmsprop: {
      const Optimizer::RmsProp& message = optimizer.rmsprop();
      return FieldChecks(context + ".rmsprop")
          .Positive("learning_rate", message.learning_rate())
          .Decay("rho", PAWL_GIVEN(Optimizer::RmsProp, rho, 0.99f))
          .Positive("epsilon", PAWL_GIVEN(Optimizer::RmsProp, epsilon, 1e-8f))
          .status();
    }
    case Optimizer::kAdam: {
      const Optimizer::Adam& message = optimizer.adam();
      return FieldChecks(context + ".adam")
          .Positive("learning_rate", message.learning_rate())
          .Decay("beta1", PAWL_GIVEN(Optimizer::Adam, beta1, 0.9f))
          .Decay("beta2", PAWL_GIVEN(Optimizer::Adam, beta2, 0.999f))
          .Positive("epsilon", PAWL_GIVEN(Optimizer::Adam, epsilon, 1e-8f))
          .status();
    }
    case Optimizer::kAdamw: {
      const Optimizer::AdamW& message = optimizer.adamw();
      return FieldChecks(context + ".adamw")
          .Positive("learning_rate", message.learning_rate())
          .Decay("beta1", PAWL_GIVEN(Optimizer::AdamW, beta1, 0.9f))
          .Decay("beta2", PAWL_GIVEN(Optimizer::AdamW, beta2, 0.999f))
          .Positive("epsilon", PAWL_GIVEN(Optimizer::AdamW, epsilon, 1e-8f))
          .NotNegative("weight_decay", PAWL_GIVEN(Optimizer::AdamW, weight_decay, 0.01f))
          .status();
    }
    case Optimizer::kFtrl: {
      const Optimizer::Ftrl& message = optimizer.ftrl();
      PAWL_RETURN_IF_ERROR(FieldChecks(context + ".ftrl")
                               .Positive("learning_rate", message.learning_rate())
                               .NotNegative("beta", PAWL_GIVEN(Optimizer::Ftrl, beta, 1.0f))
                               .NotNegative("l1", PAWL_GIVEN(Optimizer::Ftrl, l1, 0.0f))
                               .NotNegative("l2", PAWL_GIVEN(Optimizer::Ftrl, l2, 0.0f))
                               .NotNegative("initial_accumulator", PAWL_GIVEN(Optimizer::Ftrl, initial_accumulator, 0.1f))
                               .status());
      const absl::string_view possible = "0 with ftrl, which has its own: set ftrl.l1 and ftrl.l2";
      return FieldChecks(context)
          .Check("l1", optimizer.l1(), optimizer.l1() == 0, possible)
          .Check("l2", optimizer.l2(), optimizer.l2() == 0, possible)
          .status();
    }
    case Optimizer::kAssign: {
      const absl::string_view possible = "0 with assign, which takes what is pushed as it is";
      PAWL_RETURN_IF_ERROR(FieldChecks(context)
                               .Check("clip_value", optimizer.clip_value(), optimizer.clip_value() == 0, possible)
                               .Check("clip_norm", optimizer.clip_norm(), optimizer.clip_norm() == 0, possible)
                               .Check("l1", optimizer.l1(), optimizer.l1() == 0, possible)
                               .Check("l2", optimizer.l2(), optimizer.l2() == 0, possible)
                               .status());
      if (!optimizer.has_schedule()) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat(context, ".schedule is set, but assign has no learning rate"));
    }
    case Optimizer::KIND_NOT_SET:
      return absl::InvalidArgumentError(
          absl::StrCat(context,
                       " has no kind; set one of sgd, momentum, adagrad, rowwise_adagrad, rmsprop, adam, "
                       "adamw, ftrl, as in ",
                       context, " { adagrad { learning_rate: 0.05 } }"));
  }
#undef PAWL_GIVEN
  return absl::OkStatus();
}

absl::Status ValidateTableName(const std::string& name) {
  bool good = !name.empty() && name.size() <= kMaxTableNameBytes;
  for (const char c : name) good = good && (absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '/' || c == '-');
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("table name '", absl::CEscape(name.substr(0, 2 * kMaxTableNameBytes)),
                                                 "': it must be 1 to ", kMaxTableNameBytes,
                                                 " letters, digits or characters of _./-"));
}

}  // namespace

absl::Status ValidateOptimizer(const Optimizer& optimizer, absl::string_view context) {
  const std::string prefix(context);
  PAWL_RETURN_IF_ERROR(ValidateOptimizerKind(optimizer, prefix));
  PAWL_RETURN_IF_ERROR(FieldChecks(prefix)
                           .NotNegative("clip_value", optimizer.clip_value())
                           .NotNegative("clip_norm", optimizer.clip_norm())
                           .NotNegative("l1", optimizer.l1())
                           .NotNegative("l2", optimizer.l2())
                           .status());
  return ValidateSchedule(optimizer.schedule(), prefix + ".schedule");
}

absl::Status ValidateInitializer(const Initializer& initializer, absl::string_view context) {
  const std::string prefix(context);
  switch (initializer.kind_case()) {
    case Initializer::kConstant:
      return FieldChecks(prefix + ".constant").Finite("value", initializer.constant().value()).status();
    case Initializer::kUniform:
      return FieldChecks(prefix + ".uniform")
          .Finite("low", initializer.uniform().low())
          .Finite("high", initializer.uniform().high())
          .Check("high", initializer.uniform().high(), initializer.uniform().high() >= initializer.uniform().low(),
                 "at least low")
          .status();
    case Initializer::kNormal:
      return FieldChecks(prefix + ".normal")
          .Finite("mean", initializer.normal().mean())
          .NotNegative("stddev", initializer.normal().stddev())
          .status();
    case Initializer::kTruncatedNormal:
      return FieldChecks(prefix + ".truncated_normal")
          .Finite("mean", initializer.truncated_normal().mean())
          .NotNegative("stddev", initializer.truncated_normal().stddev())
          .status();
    case Initializer::kXavier:
      return FieldChecks(prefix + ".xavier").NotNegative("gain", initializer.xavier().gain()).status();
    case Initializer::KIND_NOT_SET:
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status ValidateTableSpec(const TableSpec& table) {
  PAWL_RETURN_IF_ERROR(ValidateTableName(table.name()));
  const std::string context = absl::StrCat("table ", table.name());
  if (table.element_type() != ELEMENT_TYPE_UNSPECIFIED && table.element_type() != FLOAT32) {
    return absl::InvalidArgumentError(
        absl::StrCat(context, ": element_type is ", static_cast<int>(table.element_type()), "; parameters are FLOAT32"));
  }
  if (table.kind() == DENSE) {
    if (table.shape_size() < 1 || table.shape_size() > kMaxTableDimensions) {
      return absl::InvalidArgumentError(absl::StrCat(context, ": shape has ", table.shape_size(),
                                                     " dimensions; a dense table has 1 to ", kMaxTableDimensions));
    }
    uint64_t elements = 1;
    for (const uint64_t extent : table.shape()) {
      if (extent == 0) return absl::InvalidArgumentError(absl::StrCat(context, ": shape has a 0; extents begin at 1"));
      if (extent > kMaxDenseElements / elements) {
        return absl::InvalidArgumentError(
            absl::StrCat(context, ": shape has more than ", kMaxDenseElements, " elements; use several tables"));
      }
      elements *= extent;
    }
    if (table.row_width() != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(context, ": row_width is ", table.row_width(), "; a dense table has only a shape"));
    }
  } else if (table.kind() == SPARSE) {
    if (table.row_width() < 1 || table.row_width() > kMaxRowWidth) {
      return absl::InvalidArgumentError(
          absl::StrCat(context, ": row_width is ", table.row_width(), "; a sparse table's is 1 to ", kMaxRowWidth));
    }
    if (table.shape_size() != 0) {
      return absl::InvalidArgumentError(absl::StrCat(context, ": shape is set; a sparse table has only a row_width"));
    }
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat(context, ": kind is ", static_cast<int>(table.kind()), "; it must be DENSE or SPARSE"));
  }
  PAWL_RETURN_IF_ERROR(ValidateInitializer(table.initializer(), context + ".initializer"));
  return ValidateOptimizer(table.optimizer(), context + ".optimizer");
}

}  // namespace pawl
