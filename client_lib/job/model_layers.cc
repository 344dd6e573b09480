#include "client_lib/job/model_layers.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace pawl {
namespace {

void Append(const std::string& part, int layers, std::vector<std::string>& names) {
  for (int i = 0; i < layers; ++i) names.push_back(absl::StrCat(part, "/", i));
}

}  // namespace

Loss LossOf(const Model& model) {
  if (model.loss() != LOSS_UNSPECIFIED) return model.loss();
  if (model.has_mlp() && model.mlp().classes() > 1) return SOFTMAX_CROSS_ENTROPY;
  return model.has_matrix_factorization() ? SQUARED : LOGISTIC;
}

std::vector<std::string> LayersOf(const Model& model, uint32_t labels) {
  std::vector<std::string> names;
  // The output layer is not among the hidden layers.
  switch (model.kind_case()) {
    case Model::kWideDeep:
      Append("mlp", model.wide_deep().hidden_size() + 1, names);
      break;
    case Model::kDeepfm:
      Append("mlp", model.deepfm().hidden_size() + 1, names);
      break;
    case Model::kDlrm:
      Append("bottom", model.dlrm().bottom_size(), names);
      Append("top", model.dlrm().top_size() + 1, names);
      break;
    case Model::kDcn:
      Append("mlp", model.dcn().hidden_size(), names);
      Append("output", 1, names);
      break;
    case Model::kMmoe: {
      const Model::Mmoe& mmoe = model.mmoe();
      for (uint32_t e = 0; e < mmoe.experts(); ++e)
        Append(absl::StrCat("expert/", e), mmoe.expert_size(), names);
      for (uint32_t label = 0; label < labels; ++label) {
        if (mmoe.experts() > 1) Append(absl::StrCat("gate/", label), 1, names);
        Append(absl::StrCat("tower/", label), mmoe.tower_size() + 1, names);
      }
      break;
    }
    case Model::kDin:
      for (int i = 0; i < model.din().attention_size(); ++i) {
        Append(absl::StrCat("attention/", i), model.din().attention_hidden_size() + 1, names);
      }
      Append("mlp", model.din().hidden_size() + 1, names);
      break;
    case Model::kMlp:
      Append("mlp", model.mlp().hidden_size() + 1, names);
      break;
    default:
      break;
  }
  return names;
}

absl::Status ValidateRecompute(const Model& model, uint32_t labels) {
  const std::vector<std::string> layers = LayersOf(model, labels);
  for (int i = 0; i < model.recompute_size(); ++i) {
    const std::string& name = model.recompute(i);
    if (name == "all" || std::find(layers.begin(), layers.end(), name) != layers.end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("model.recompute[", i, "] is '", absl::CEscape(name.substr(0, 100)),
                     "', which is not a layer; ",
                     layers.empty() ? "the model has no fully connected layers; leave it out"
                                    : absl::StrCat("the layers are ", absl::StrJoin(layers, ", "),
                                                   "; \"all\" names all of them")));
  }
  return absl::OkStatus();
}

}  // namespace pawl
