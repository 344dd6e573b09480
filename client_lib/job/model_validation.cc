#include "client_lib/job/model_validation.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client_lib/base/limits.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/base/table_validation.h"
#include "client_lib/job/field_layout.h"
#include "client_lib/job/model_layers.h"

namespace pawl {
namespace {

absl::Status ValidateDim(const std::string& where, uint32_t dim) {
  if (dim >= 1 && dim <= kMaxEmbeddingDim) return absl::OkStatus();
  return Invalid(where, ".dim is ", dim, "; it must be 1 to ", kMaxEmbeddingDim);
}

absl::Status ValidateStddev(const std::string& where, float stddev) {
  const bool is_possible =
      stddev >= 0 && std::isfinite(static_cast<float>(kMaxNormalDeviations * stddev));
  if (is_possible) return absl::OkStatus();
  return Invalid(where, ".init_stddev is ", stddev, "; it must be at least 0 (0 means 0.01), and ",
                 kMaxNormalDeviations, " times it must be a finite float");
}

template <typename Layers>
absl::Status ValidateLayers(const std::string& field, const Layers& widths) {
  if (widths.size() > kMaxHiddenLayers) {
    return Invalid(field, " has ", widths.size(), " layers; at most ", kMaxHiddenLayers,
                   " are possible");
  }
  for (int i = 0; i < widths.size(); ++i) {
    if (widths.Get(i) < 1 || widths.Get(i) > kMaxLayerWidth) {
      return Invalid(field, "[", i, "] is ", widths.Get(i), "; a layer is 1 to ", kMaxLayerWidth,
                     " wide");
    }
  }
  return absl::OkStatus();
}

absl::Status NeedFields(const std::string& where, const DataFeatures& features, uint64_t fields) {
  if (features.fields >= fields) return absl::OkStatus();
  return Invalid(where, " needs at least ", fields, " categorical field", fields == 1 ? "" : "s",
                 ", but data has ", features.fields,
                 "; add bucketized, categorical, hashed or crossed columns, or choose mlp");
}

// Larger ones are mistakes; the learning rate scales the loss.
constexpr float kMaxLabelWeight = 1e6f;

absl::Status ValidateMmoe(const Model::Mmoe& mmoe, const DataFeatures& features) {
  PAWL_RETURN_IF_ERROR(ValidateDim("model.mmoe", mmoe.dim()));
  PAWL_RETURN_IF_ERROR(ValidateStddev("model.mmoe", mmoe.init_stddev()));
  PAWL_RETURN_IF_ERROR(ValidateLayers("model.mmoe.expert", mmoe.expert()));
  PAWL_RETURN_IF_ERROR(ValidateLayers("model.mmoe.tower", mmoe.tower()));
  if (mmoe.experts() < 1 || mmoe.experts() > kMaxExperts) {
    return Invalid("model.mmoe.experts is ", mmoe.experts(), "; it must be 1 to ", kMaxExperts);
  }
  if (mmoe.expert().empty())
    return Invalid("model.mmoe.expert is empty; it must have the widths of an expert's layers");
  const uint64_t layers = uint64_t{mmoe.experts()} * static_cast<uint64_t>(mmoe.expert_size()) +
                          features.labels * static_cast<uint64_t>(mmoe.tower_size() + 2);
  if (layers > kMaxMmoeLayers) {
    return Invalid("model.mmoe has ", layers, " layers in all experts, gates and towers; at most ",
                   kMaxMmoeLayers, " are possible");
  }
  if (mmoe.label_weights().empty()) return absl::OkStatus();
  if (static_cast<uint64_t>(mmoe.label_weights_size()) != features.labels) {
    return Invalid("model.mmoe.label_weights has ", mmoe.label_weights_size(),
                   " entries, but data has ", features.labels, " labels");
  }
  float largest = 0;
  for (int i = 0; i < mmoe.label_weights_size(); ++i) {
    const float weight = mmoe.label_weights(i);
    if (!(weight >= 0 && weight <= kMaxLabelWeight)) {
      return Invalid("model.mmoe.label_weights[", i, "] is ", weight, "; it must be 0 to ",
                     kMaxLabelWeight);
    }
    largest = std::max(largest, weight);
  }
  if (largest > 0) return absl::OkStatus();
  return Invalid("model.mmoe.label_weights is [", absl::StrJoin(mmoe.label_weights(), ", "),
                 "]; with 0 for every label the model would learn nothing");
}

// The width of the vectors that the model multiplies with each other; 0 if it does not.
uint32_t MultipliedDim(const Model& model) {
  switch (model.kind_case()) {
    case Model::kFm:
      return model.fm().dim();
    case Model::kDeepfm:
      return model.deepfm().dim();
    case Model::kDlrm:
      return model.dlrm().dim();
    case Model::kMatrixFactorization:
      return model.matrix_factorization().dim();
    default:
      return 0;
  }
}

absl::Status ValidateFeatures(const Data& data, const Model& model, const DataFeatures& inputs) {
  for (int i = 0; i < model.features_size(); ++i) {
    const Features& features = model.features(i);
    const std::string where = absl::StrCat("model.features[", i, "]");
    PAWL_RETURN_IF_ERROR(ValidateStddev(where, features.init_stddev()));
    if (model.has_logistic_regression() &&
        (features.dim() != 0 || features.init_stddev() != 0 || features.pooling() == MAX)) {
      return Invalid(where, " has dim, init_stddev or pooling: MAX, but logistic_regression has ",
                     "weights only, which are summed; leave them out");
    }
    if (features.optimizer().has_assign()) {
      return Invalid(where,
                     ".optimizer.assign is set, which trains nothing; set another optimizer");
    }
    if (features.has_optimizer()) {
      PAWL_RETURN_IF_ERROR(
          ValidateOptimizer(features.optimizer(), absl::StrCat(where, ".optimizer")));
    }
  }
  // Only the data determines how many fields LIBSVM has.
  const bool is_known = data.format() != LIBSVM || data.libsvm_fields() != 0;
  PAWL_ASSIGN_OR_RETURN(
      const FieldLayout layout,
      FieldLayoutOf(data, model, is_known ? static_cast<uint32_t>(inputs.fields) : kMaxFields));
  const uint32_t dim = MultipliedDim(model);
  return dim == 0 ? absl::OkStatus() : CheckOneDim(layout, dim);
}

absl::Status ValidateFm(const Model::FactorizationMachine& fm, const DataFeatures& features) {
  PAWL_RETURN_IF_ERROR(NeedFields("model.fm", features, 1));
  PAWL_RETURN_IF_ERROR(ValidateDim("model.fm", fm.dim()));
  return ValidateStddev("model.fm", fm.init_stddev());
}

absl::Status ValidateWideDeep(const Model::WideDeep& wide_deep, const DataFeatures& features) {
  PAWL_RETURN_IF_ERROR(NeedFields("model.wide_deep", features, 1));
  PAWL_RETURN_IF_ERROR(ValidateDim("model.wide_deep", wide_deep.dim()));
  PAWL_RETURN_IF_ERROR(ValidateStddev("model.wide_deep", wide_deep.init_stddev()));
  return ValidateLayers("model.wide_deep.hidden", wide_deep.hidden());
}

absl::Status ValidateDeepFm(const Model::DeepFm& deepfm, const DataFeatures& features) {
  PAWL_RETURN_IF_ERROR(NeedFields("model.deepfm", features, 1));
  PAWL_RETURN_IF_ERROR(ValidateDim("model.deepfm", deepfm.dim()));
  PAWL_RETURN_IF_ERROR(ValidateStddev("model.deepfm", deepfm.init_stddev()));
  return ValidateLayers("model.deepfm.hidden", deepfm.hidden());
}

absl::Status ValidateDlrm(const Model::Dlrm& dlrm, const DataFeatures& features) {
  PAWL_RETURN_IF_ERROR(NeedFields("model.dlrm", features, 1));
  PAWL_RETURN_IF_ERROR(ValidateDim("model.dlrm", dlrm.dim()));
  PAWL_RETURN_IF_ERROR(ValidateStddev("model.dlrm", dlrm.init_stddev()));
  PAWL_RETURN_IF_ERROR(ValidateLayers("model.dlrm.bottom", dlrm.bottom()));
  PAWL_RETURN_IF_ERROR(ValidateLayers("model.dlrm.top", dlrm.top()));
  if (features.numerics == 0 && dlrm.bottom_size() > 0) {
    return Invalid("model.dlrm.bottom is set, but data has no numeric inputs; leave it out");
  }
  if (features.numerics > 0 &&
      (dlrm.bottom_size() == 0 || dlrm.bottom(dlrm.bottom_size() - 1) != dlrm.dim())) {
    return Invalid("model.dlrm.bottom must end with a layer as wide as dim, ", dlrm.dim(),
                   ", since data has numeric inputs");
  }
  if (features.numerics == 0 && features.fields < 2) {
    return Invalid("model.dlrm multiplies vectors with each other, but data has one field and ",
                   "no numeric inputs; add columns, or choose wide_deep");
  }
  return absl::OkStatus();
}

absl::Status ValidateMlp(const Model::Mlp& mlp, const DataFeatures& features) {
  if (features.numerics == 0) {
    return Invalid(
        "model.mlp needs numeric inputs, but data has none; use IDX, or CSV with numeric "
        "columns");
  }
  PAWL_RETURN_IF_ERROR(ValidateLayers("model.mlp.hidden", mlp.hidden()));
  if (mlp.classes() < 1 || mlp.classes() > kMaxClasses) {
    return Invalid("model.mlp.classes is ", mlp.classes(), "; it must be 1 to ", kMaxClasses);
  }
  if (features.fields > 0) {
    return Invalid("model.mlp takes only numeric inputs, but data has ", features.fields,
                   " categorical fields; leave them out, or choose wide_deep");
  }
  return absl::OkStatus();
}

absl::Status ValidateMatrixFactorization(const Model::MatrixFactorization& model,
                                         const DataFeatures& features) {
  PAWL_RETURN_IF_ERROR(NeedFields("model.matrix_factorization", features, 2));
  if (features.fields > 2 || features.numerics > 0) {
    return Invalid("model.matrix_factorization takes a user and an item, but data has ",
                   features.fields, " categorical fields and ", features.numerics,
                   " numeric inputs; leave the others out, or choose fm");
  }
  PAWL_RETURN_IF_ERROR(ValidateDim("model.matrix_factorization", model.dim()));
  PAWL_RETURN_IF_ERROR(ValidateStddev("model.matrix_factorization", model.init_stddev()));
  if (!std::isfinite(model.mean())) {
    return Invalid("model.matrix_factorization.mean is ", model.mean(),
                   "; it must be a finite number");
  }
  return absl::OkStatus();
}

absl::Status ValidateDcn(const Model::Dcn& dcn, const DataFeatures& features, bool has_features) {
  PAWL_RETURN_IF_ERROR(NeedFields("model.dcn", features, 1));
  PAWL_RETURN_IF_ERROR(ValidateDim("model.dcn", dcn.dim()));
  PAWL_RETURN_IF_ERROR(ValidateStddev("model.dcn", dcn.init_stddev()));
  PAWL_RETURN_IF_ERROR(ValidateLayers("model.dcn.hidden", dcn.hidden()));
  if (dcn.cross_layers() < 1 || dcn.cross_layers() > kMaxHiddenLayers) {
    return Invalid("model.dcn.cross_layers is ", dcn.cross_layers(), "; it must be 1 to ",
                   kMaxHiddenLayers);
  }
  if (const uint64_t width = features.fields * dcn.dim() + features.numerics;
      !has_features && dcn.rank() == 0 && width > kMaxLayerWidth) {
    return Invalid("model.dcn would multiply its ", width, " inputs by a square matrix; with ",
                   "more than ", kMaxLayerWidth, " set model.dcn.rank");
  }
  if (dcn.rank() > kMaxLayerWidth) {
    return Invalid("model.dcn.rank is ", dcn.rank(), "; at most ", kMaxLayerWidth, " is possible");
  }
  return absl::OkStatus();
}

absl::Status ValidateDin(const Model::Din& din, const DataFeatures& features) {
  PAWL_RETURN_IF_ERROR(NeedFields("model.din", features, 2));
  PAWL_RETURN_IF_ERROR(ValidateDim("model.din", din.dim()));
  PAWL_RETURN_IF_ERROR(ValidateStddev("model.din", din.init_stddev()));
  PAWL_RETURN_IF_ERROR(ValidateLayers("model.din.hidden", din.hidden()));
  PAWL_RETURN_IF_ERROR(ValidateLayers("model.din.attention_hidden", din.attention_hidden()));
  if (din.attention().empty()) {
    return Invalid(
        "model.din.attention is empty; name a history and its target, or choose wide_deep");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateModel(const Data& data, const Model& model, const DataFeatures& features) {
  switch (model.kind_case()) {
    case Model::kLogisticRegression:
      break;
    case Model::kFm:
      PAWL_RETURN_IF_ERROR(ValidateFm(model.fm(), features));
      break;
    case Model::kWideDeep:
      PAWL_RETURN_IF_ERROR(ValidateWideDeep(model.wide_deep(), features));
      break;
    case Model::kDeepfm:
      PAWL_RETURN_IF_ERROR(ValidateDeepFm(model.deepfm(), features));
      break;
    case Model::kDlrm:
      PAWL_RETURN_IF_ERROR(ValidateDlrm(model.dlrm(), features));
      break;
    case Model::kMlp:
      PAWL_RETURN_IF_ERROR(ValidateMlp(model.mlp(), features));
      break;
    case Model::kMatrixFactorization:
      PAWL_RETURN_IF_ERROR(ValidateMatrixFactorization(model.matrix_factorization(), features));
      break;
    case Model::kDcn:
      PAWL_RETURN_IF_ERROR(ValidateDcn(model.dcn(), features, !model.features().empty()));
      break;
    case Model::kMmoe:
      PAWL_RETURN_IF_ERROR(NeedFields("model.mmoe", features, 1));
      PAWL_RETURN_IF_ERROR(ValidateMmoe(model.mmoe(), features));
      break;
    case Model::kDin:
      PAWL_RETURN_IF_ERROR(ValidateDin(model.din(), features));
      break;
    case Model::KIND_NOT_SET:
      return Invalid(
          "model has no kind; set one of logistic_regression, fm, wide_deep, deepfm, dlrm, mlp, "
          "matrix_factorization, dcn, mmoe, din");
  }
  if (features.labels > 1 && !model.has_mmoe()) {
    return Invalid("data has ", features.labels, " labels, but only model.mmoe predicts more than ",
                   "one; choose it, or keep one label");
  }
  PAWL_RETURN_IF_ERROR(ValidateFeatures(data, model, features));
  PAWL_RETURN_IF_ERROR(ValidateRecompute(model, static_cast<uint32_t>(features.labels)));
  const bool many_classes = model.has_mlp() && model.mlp().classes() > 1;
  if (!Loss_IsValid(model.loss()))
    return Invalid("model.loss is ", static_cast<int>(model.loss()), ", which is unknown");
  if (model.loss() != LOSS_UNSPECIFIED && (model.loss() == SOFTMAX_CROSS_ENTROPY) != many_classes) {
    return Invalid("model.loss is ", Loss_Name(model.loss()),
                   "; mlp with classes > 1 takes SOFTMAX_CROSS_ENTROPY, ",
                   "every other model LOGISTIC or SQUARED");
  }
  return absl::OkStatus();
}

}  // namespace pawl
