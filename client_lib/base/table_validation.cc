#include "client_lib/base/table_validation.h"

#include <cmath>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

absl::Status Refuse(absl::string_view context, absl::string_view field, double value,
                    absl::string_view possible) {
  return absl::InvalidArgumentError(
      absl::StrCat(context, ".", field, " is ", value, "; it must be ", possible));
}

// Checks fields of one message and remembers the first mistake.
class FieldChecks {
 public:
  explicit FieldChecks(std::string context) : context_(std::move(context)) {}

  FieldChecks& Positive(absl::string_view field, float value) {
    return Check(field, value, std::isfinite(value) && value > 0, "a number above 0");
  }
  FieldChecks& NotNegative(absl::string_view field, float value) {
    return Check(field, value, std::isfinite(value) && value >= 0, "0 or a number above it");
  }
  // For a field that may be unset and then has its default.
  FieldChecks& Positive(absl::string_view field, bool given, float value) {
    return given ? Positive(field, value) : *this;
  }
  FieldChecks& NotNegative(absl::string_view field, bool given, float value) {
    return given ? NotNegative(field, value) : *this;
  }
  FieldChecks& Decay(absl::string_view field, bool given, float value) {
    return given ? Decay(field, value) : *this;
  }
  FieldChecks& Finite(absl::string_view field, float value) {
    return Check(field, value, std::isfinite(value), "a finite number");
  }
  // In [0, 1).
  FieldChecks& Decay(absl::string_view field, float value) {
    return Check(field, value, value >= 0 && value < 1, "at least 0 and below 1");
  }
  FieldChecks& Check(absl::string_view field, double value, bool holds,
                     absl::string_view possible) {
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
          .Check("every_steps", static_cast<double>(schedule.step().every_steps()),
                 schedule.step().every_steps() > 0, "at least 1")
          // Above 1 the rate would grow without bound.
          .Check("gamma", schedule.step().gamma(),
                 schedule.step().gamma() > 0 && schedule.step().gamma() <= 1,
                 "above 0 and at most 1")
          .status();
    case LearningRateSchedule::kCosine:
      return FieldChecks(context + ".cosine")
          .Check("total_steps", static_cast<double>(schedule.cosine().total_steps()),
                 schedule.cosine().total_steps() > 0, "at least 1")
          .Check("floor", schedule.cosine().floor(),
                 schedule.cosine().floor() >= 0 && schedule.cosine().floor() <= 1, "from 0 to 1")
          .status();
    case LearningRateSchedule::kPolynomial:
      return FieldChecks(context + ".polynomial")
          .Check("total_steps", static_cast<double>(schedule.polynomial().total_steps()),
                 schedule.polynomial().total_steps() > 0, "at least 1")
          .Check("floor", schedule.polynomial().floor(),
                 schedule.polynomial().floor() >= 0 && schedule.polynomial().floor() <= 1,
                 "from 0 to 1")
          .Check("power", schedule.polynomial().power(),
                 schedule.polynomial().power() >= 0 && std::isfinite(schedule.polynomial().power()),
                 "finite and not negative")
          .status();
    case LearningRateSchedule::kCosineRestarts:
      return FieldChecks(context + ".cosine_restarts")
          .Check("first_period_steps",
                 static_cast<double>(schedule.cosine_restarts().first_period_steps()),
                 schedule.cosine_restarts().first_period_steps() > 0, "at least 1")
          .Check("floor", schedule.cosine_restarts().floor(),
                 schedule.cosine_restarts().floor() >= 0 && schedule.cosine_restarts().floor() <= 1,
                 "from 0 to 1")
          .status();
    case LearningRateSchedule::KIND_NOT_SET:
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status ValidateAdamW(const Optimizer& optimizer, const std::string& context) {
  const Optimizer::AdamW& message = optimizer.adamw();
  PAWL_RETURN_IF_ERROR(FieldChecks(context)
                           .Check("weight_decay", optimizer.weight_decay(),
                                  optimizer.weight_decay() == 0,
                                  "0 with adamw, which has its own: set adamw.weight_decay")
                           .status());
  return FieldChecks(context + ".adamw")
      .Positive("learning_rate", message.learning_rate())
      .Decay("beta1", message.has_beta1(), message.beta1())
      .Decay("beta2", message.has_beta2(), message.beta2())
      .Positive("epsilon", message.has_epsilon(), message.epsilon())
      .NotNegative("weight_decay", message.has_weight_decay(), message.weight_decay())
      .status();
}

absl::Status ValidateFtrl(const Optimizer& optimizer, const std::string& context) {
  const Optimizer::Ftrl& message = optimizer.ftrl();
  PAWL_RETURN_IF_ERROR(FieldChecks(context + ".ftrl")
                           .Positive("learning_rate", message.learning_rate())
                           .NotNegative("beta", message.has_beta(), message.beta())
                           .NotNegative("l1", message.has_l1(), message.l1())
                           .NotNegative("l2", message.has_l2(), message.l2())
                           .NotNegative("initial_accumulator", message.has_initial_accumulator(),
                                        message.initial_accumulator())
                           .status());
  if (message.has_beta() && message.beta() == 0 && message.l2() == 0 &&
      message.has_initial_accumulator() && message.initial_accumulator() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(context,
                     ".ftrl: beta, l2 and initial_accumulator are all 0, which leaves nothing "
                     "to divide by; set one above 0"));
  }
  const absl::string_view possible = "0 with ftrl, which has its own: set ftrl.l1 and ftrl.l2";
  return FieldChecks(context)
      .Check("l1", optimizer.l1(), optimizer.l1() == 0, possible)
      .Check("l2", optimizer.l2(), optimizer.l2() == 0, possible)
      .Check("weight_decay", optimizer.weight_decay(), optimizer.weight_decay() == 0,
             "0 with ftrl, whose weights follow from its slots; set ftrl.l2")
      .status();
}

absl::Status ValidateAssign(const Optimizer& optimizer, const std::string& context) {
  const absl::string_view possible = "0 with assign, which stores pushed values unchanged";
  PAWL_RETURN_IF_ERROR(
      FieldChecks(context)
          .Check("clip_value", optimizer.clip_value(), optimizer.clip_value() == 0, possible)
          .Check("clip_norm", optimizer.clip_norm(), optimizer.clip_norm() == 0, possible)
          .Check("l1", optimizer.l1(), optimizer.l1() == 0, possible)
          .Check("l2", optimizer.l2(), optimizer.l2() == 0, possible)
          .Check("weight_decay", optimizer.weight_decay(), optimizer.weight_decay() == 0, possible)
          .status());
  if (!optimizer.has_schedule()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(context, ".schedule is set, but assign has no learning rate"));
}

absl::Status ValidateOptimizerKind(const Optimizer& optimizer, const std::string& context) {
  switch (optimizer.kind_case()) {
    case Optimizer::kSgd:
      return FieldChecks(context + ".sgd")
          .Positive("learning_rate", optimizer.sgd().learning_rate())
          .status();
    case Optimizer::kMomentum: {
      const Optimizer::Momentum& message = optimizer.momentum();
      return FieldChecks(context + ".momentum")
          .Positive("learning_rate", message.learning_rate())
          .Decay("momentum", message.has_momentum(), message.momentum())
          .status();
    }
    case Optimizer::kAdagrad: {
      const Optimizer::Adagrad& message = optimizer.adagrad();
      return FieldChecks(context + ".adagrad")
          .Positive("learning_rate", message.learning_rate())
          .NotNegative("initial_accumulator", message.has_initial_accumulator(),
                       message.initial_accumulator())
          .Positive("epsilon", message.has_epsilon(), message.epsilon())
          .status();
    }
    case Optimizer::kRowwiseAdagrad: {
      const Optimizer::RowWiseAdagrad& message = optimizer.rowwise_adagrad();
      return FieldChecks(context + ".rowwise_adagrad")
          .Positive("learning_rate", message.learning_rate())
          .NotNegative("initial_accumulator", message.has_initial_accumulator(),
                       message.initial_accumulator())
          .Positive("epsilon", message.has_epsilon(), message.epsilon())
          .status();
    }
    case Optimizer::kRmsprop: {
      const Optimizer::RmsProp& message = optimizer.rmsprop();
      return FieldChecks(context + ".rmsprop")
          .Positive("learning_rate", message.learning_rate())
          .Decay("rho", message.has_rho(), message.rho())
          .Positive("epsilon", message.has_epsilon(), message.epsilon())
          .status();
    }
    case Optimizer::kAdam: {
      const Optimizer::Adam& message = optimizer.adam();
      return FieldChecks(context + ".adam")
          .Positive("learning_rate", message.learning_rate())
          .Decay("beta1", message.has_beta1(), message.beta1())
          .Decay("beta2", message.has_beta2(), message.beta2())
          .Positive("epsilon", message.has_epsilon(), message.epsilon())
          .status();
    }
    case Optimizer::kAdamw:
      return ValidateAdamW(optimizer, context);
    case Optimizer::kFtrl:
      return ValidateFtrl(optimizer, context);
    case Optimizer::kAssign:
      return ValidateAssign(optimizer, context);
    case Optimizer::KIND_NOT_SET:
      return absl::InvalidArgumentError(absl::StrCat(
          context,
          " has no kind; set one of sgd, momentum, adagrad, rowwise_adagrad, rmsprop, adam, "
          "adamw, ftrl, assign, as in ",
          context, " { adagrad { learning_rate: 0.05 } }"));
  }
  return absl::OkStatus();
}

absl::Status ValidateNormal(float mean, float stddev, const std::string& context) {
  const double farthest =
      std::fabs(static_cast<double>(mean)) + kMaxNormalDeviations * static_cast<double>(stddev);
  return FieldChecks(context)
      .Finite("mean", mean)
      .NotNegative("stddev", stddev)
      .Check("stddev", stddev, std::isfinite(static_cast<float>(farthest)),
             absl::StrCat("small enough that mean + ", kMaxNormalDeviations,
                          " stddev is a finite float"))
      .status();
}

absl::Status ValidateXavier(const TableSpec& table, const std::string& context) {
  const Initializer::Xavier& xavier = table.initializer().xavier();
  // Within these bounds every limit, gain sqrt(6 / (fan_in + fan_out)), is a float above 0.
  PAWL_RETURN_IF_ERROR(
      FieldChecks(context)
          .Check("gain", xavier.gain(),
                 xavier.gain() == 0 || (xavier.gain() >= 1e-30 && xavier.gain() <= 1e38),
                 "0, which means 1, or from 1e-30 to 1e38")
          .status());
  const bool gives_fans = table.kind() == SPARSE || table.shape_size() == 2;
  const bool has_fans = xavier.fan_in() > 0 && xavier.fan_out() > 0;
  if (gives_fans || has_fans) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      context, xavier.fan_in() == 0 ? ".fan_in" : ".fan_out", " is 0; a tensor of ",
      table.shape_size(), " dimensions does not define the fans: set fan_in and fan_out"));
}

absl::Status ValidateTableName(const std::string& name) {
  bool good = !name.empty() && name.size() <= kMaxTableNameBytes;
  for (const char c : name)
    good = good && (absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '/' || c == '-');
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "table name '", absl::CEscape(name.substr(0, 2 * kMaxTableNameBytes)), "': it must be 1 to ",
      kMaxTableNameBytes, " letters, digits or characters of _./-"));
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
                           .NotNegative("weight_decay", optimizer.weight_decay())
                           .status());
  return ValidateSchedule(optimizer.schedule(), prefix + ".schedule");
}

absl::Status ValidateInitializer(const TableSpec& table, absl::string_view context) {
  const Initializer& initializer = table.initializer();
  const std::string prefix(context);
  // A row of only zeros is a constant.
  if (initializer.zero_from() != 0 &&
      (table.kind() != SPARSE || initializer.zero_from() >= table.row_width())) {
    return Refuse(prefix, "zero_from", initializer.zero_from(),
                  "below the row_width of a sparse table");
  }
  switch (initializer.kind_case()) {
    case Initializer::kConstant:
      return FieldChecks(prefix + ".constant")
          .Finite("value", initializer.constant().value())
          .status();
    case Initializer::kUniform:
      return FieldChecks(prefix + ".uniform")
          .Finite("low", initializer.uniform().low())
          .Finite("high", initializer.uniform().high())
          .Check("high", initializer.uniform().high(),
                 initializer.uniform().high() > initializer.uniform().low(),
                 absl::StrCat("above low, which is ", initializer.uniform().low()))
          .status();
    case Initializer::kNormal:
      return ValidateNormal(initializer.normal().mean(), initializer.normal().stddev(),
                            prefix + ".normal");
    case Initializer::kTruncatedNormal:
      return ValidateNormal(initializer.truncated_normal().mean(),
                            initializer.truncated_normal().stddev(), prefix + ".truncated_normal");
    case Initializer::kXavier:
      return ValidateXavier(table, prefix + ".xavier");
    case Initializer::KIND_NOT_SET:
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status ValidateTableSpec(const TableSpec& table) {
  PAWL_RETURN_IF_ERROR(ValidateTableName(table.name()));
  const std::string context = absl::StrCat("table ", table.name());
  if (table.element_type() != ELEMENT_TYPE_UNSPECIFIED && table.element_type() != FLOAT32) {
    return absl::InvalidArgumentError(absl::StrCat(context, ": element_type is ",
                                                   static_cast<int>(table.element_type()),
                                                   "; parameters are FLOAT32"));
  }
  if (table.kind() == DENSE) {
    if (table.shape_size() < 1 || table.shape_size() > kMaxTableDimensions) {
      return absl::InvalidArgumentError(absl::StrCat(context, ": shape has ", table.shape_size(),
                                                     " dimensions; a dense table has 1 to ",
                                                     kMaxTableDimensions));
    }
    uint64_t elements = 1;
    for (const uint64_t extent : table.shape()) {
      if (extent == 0)
        return absl::InvalidArgumentError(
            absl::StrCat(context, ": shape has a 0; extents begin at 1"));
      if (extent > kMaxDenseElements / elements) {
        return absl::InvalidArgumentError(absl::StrCat(
            context, ": shape has more than ", kMaxDenseElements, " elements; use several tables"));
      }
      elements *= extent;
    }
    if (table.row_width() != 0) {
      return absl::InvalidArgumentError(absl::StrCat(context, ": row_width is ", table.row_width(),
                                                     "; a dense table has only a shape"));
    }
  } else if (table.kind() == SPARSE) {
    if (table.row_width() < 1 || table.row_width() > kMaxRowWidth) {
      return absl::InvalidArgumentError(absl::StrCat(context, ": row_width is ", table.row_width(),
                                                     "; a sparse table has rows of width 1 to ",
                                                     kMaxRowWidth));
    }
    if (table.shape_size() != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(context, ": shape is set; a sparse table has only a row_width"));
    }
  } else {
    return absl::InvalidArgumentError(absl::StrCat(
        context, ": kind is ", static_cast<int>(table.kind()), "; it must be DENSE or SPARSE"));
  }
  PAWL_RETURN_IF_ERROR(ValidateInitializer(table, context + ".initializer"));
  return ValidateOptimizer(table.optimizer(), context + ".optimizer");
}

}  // namespace pawl
