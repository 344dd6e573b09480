#include "worker/model/testing/reference_loss.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace pawl {
namespace {

using Vector = std::vector<double>;
using Widths = google::protobuf::RepeatedField<uint32_t>;

class ReferenceSample {
 public:
  ReferenceSample(const Model& model, const FieldLayout& layout, const Batch& batch,
                  const ReferenceParameters& parameters, uint32_t s)
      : model_(model), layout_(layout), batch_(batch), parameters_(parameters), s_(s) {
    for (uint32_t i = 0; i < batch.numeric_count; ++i)
      numerics_.push_back(batch.numerics[s * batch.numeric_count + i]);
  }

  const Vector& numerics() const { return numerics_; }

  // value * the first `width` elements of the row of the table, for each entry of a field.
  std::vector<Vector> EntryVectors(const std::string& table, FieldLayout::Place place,
                                   size_t width) const {
    const Vector& rows = parameters_.at(table);
    const FieldSet& set = batch_.field_sets[place.field_set];
    const size_t keys = batch_.keys[set.key_set].size();
    const size_t stride = keys == 0 ? 0 : rows.size() / keys;
    std::vector<Vector> vectors;
    const size_t field = s_ * set.field_count + place.index;
    for (uint32_t e = set.field_begin[field]; e < set.field_begin[field + 1]; ++e) {
      Vector& vector = vectors.emplace_back();
      for (size_t d = 0; d < width; ++d)
        vector.push_back(set.entry_value[e] * rows[set.entry_key[e] * stride + d]);
    }
    return vectors;
  }

  uint32_t DimOf(FieldLayout::Place place, uint32_t dim) const {
    const uint32_t own = layout_.key_sets[layout_.field_sets[place.field_set].key_set].dim;
    return own == 0 ? dim : own;
  }
  const std::string& TableOf(FieldLayout::Place place) const {
    return layout_.key_sets[layout_.field_sets[place.field_set].key_set].name;
  }

  // The pooled vector of a field.
  Vector FieldVector(FieldLayout::Place place, uint32_t dim) const {
    const uint32_t width = DimOf(place, dim);
    const bool is_max = layout_.field_sets[place.field_set].pooling == FieldPooling::kMax;
    const std::vector<Vector> vectors = EntryVectors(TableOf(place), place, width);
    Vector pooled(width, 0.0);
    for (size_t e = 0; e < vectors.size(); ++e) {
      for (size_t d = 0; d < width; ++d) {
        pooled[d] = e == 0   ? vectors[e][d]
                    : is_max ? std::max(pooled[d], vectors[e][d])
                             : pooled[d] + vectors[e][d];
      }
    }
    return pooled;
  }

  // The vectors of all fields that are pooled, in the order of the layout.
  std::vector<Vector> Embeddings(uint32_t dim) const {
    std::vector<Vector> vectors;
    for (size_t set = 0; set < layout_.field_sets.size(); ++set) {
      if (layout_.field_sets[set].pooling == FieldPooling::kNone) continue;
      for (size_t f = 0; f < layout_.field_sets[set].fields.size(); ++f)
        vectors.push_back(FieldVector({set, f}, dim));
    }
    return vectors;
  }

  // The sum of a(v, t) * v over a history, where a is an MLP.
  Vector AttentionVector(const std::string& name, const FieldLayout::Attention& attention,
                         uint32_t dim, int layers) const {
    const Vector target = FieldVector(attention.target, dim);
    Vector pooled(target.size(), 0.0);
    for (const Vector& vector :
         EntryVectors(TableOf(attention.history), attention.history, target.size())) {
      Vector inputs = vector;
      inputs.insert(inputs.end(), target.begin(), target.end());
      for (size_t d = 0; d < target.size(); ++d) inputs.push_back(vector[d] - target[d]);
      for (size_t d = 0; d < target.size(); ++d) inputs.push_back(vector[d] * target[d]);
      const double weight = Mlp(name, inputs, layers, false)[0];
      for (size_t d = 0; d < target.size(); ++d) pooled[d] += weight * vector[d];
    }
    return pooled;
  }

  // `dim`: the width of vectors, which precede the weights in rows that have both.
  double Linear(uint32_t dim = 0) const {
    double sum = 0;
    for (size_t set = 0; set < layout_.field_sets.size(); ++set) {
      const std::string& name = layout_.key_sets[layout_.field_sets[set].key_set].name;
      const std::string own = name == "embedding" ? "linear" : absl::StrCat(name, "/linear");
      for (size_t f = 0; f < layout_.field_sets[set].fields.size(); ++f) {
        const FieldLayout::Place place{set, f};
        const bool is_own = parameters_.contains(own);
        const size_t width = is_own ? 1 : DimOf(place, dim) + size_t{1};
        for (const Vector& row : EntryVectors(is_own ? own : name, place, width)) sum += row.back();
      }
    }
    for (size_t i = 0; i < numerics_.size(); ++i)
      sum += numerics_[i] * parameters_.at("linear/numeric")[i];
    return sum;
  }

  double Bias() const { return parameters_.at("bias")[0]; }

  Vector Mlp(const std::string& name, Vector x, int layers, bool relu_at_end) const {
    for (int l = 0; l < layers; ++l) {
      const Vector& weight = parameters_.at(absl::StrCat(name, "/", l, "/weight"));
      Vector y = parameters_.at(absl::StrCat(name, "/", l, "/bias"));
      for (size_t i = 0; i < x.size(); ++i) {
        for (size_t o = 0; o < y.size(); ++o) y[o] += x[i] * weight[i * y.size() + o];
      }
      if (l + 1 < layers || relu_at_end) {
        for (double& value : y) value = std::max(value, 0.0);
      }
      x = y;
    }
    return x;
  }

  // x * W
  Vector Product(const std::string& name, const Vector& x) const {
    const Vector& weight = parameters_.at(name);
    const size_t columns = weight.size() / x.size();
    Vector y(columns, 0.0);
    for (size_t i = 0; i < x.size(); ++i) {
      for (size_t o = 0; o < columns; ++o) y[o] += x[i] * weight[i * columns + o];
    }
    return y;
  }

  Vector CrossLayers(const Vector& x0, uint32_t layers, bool has_rank) const {
    Vector x = x0;
    for (uint32_t l = 0; l < layers; ++l) {
      const std::string name = absl::StrCat("cross/", l, "/");
      const Vector product =
          has_rank ? Product(name + "u", Product(name + "v", x)) : Product(name + "w", x);
      const Vector& bias = parameters_.at(name + "bias");
      for (size_t i = 0; i < x.size(); ++i) x[i] += x0[i] * (product[i] + bias[i]);
    }
    return x;
  }

  // The vectors of all fields, histories by attention, and the numeric inputs, concatenated.
  Vector DeepInputs(uint32_t dim) const {
    Vector inputs;
    for (const Vector& v : Embeddings(dim)) inputs.insert(inputs.end(), v.begin(), v.end());
    for (size_t i = 0; i < layout_.attentions.size(); ++i) {
      const Vector v = AttentionVector(absl::StrCat("attention/", i), layout_.attentions[i], dim,
                                       model_.din().attention_hidden_size() + 1);
      inputs.insert(inputs.end(), v.begin(), v.end());
    }
    inputs.insert(inputs.end(), numerics_.begin(), numerics_.end());
    return inputs;
  }

  static Vector PairDots(const std::vector<Vector>& vectors) {
    Vector dots;
    for (size_t i = 0; i < vectors.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        dots.push_back(0);
        for (size_t d = 0; d < vectors[i].size(); ++d) dots.back() += vectors[i][d] * vectors[j][d];
      }
    }
    return dots;
  }

 private:
  const Model& model_;
  const FieldLayout& layout_;
  const Batch& batch_;
  const ReferenceParameters& parameters_;
  const uint32_t s_;
  Vector numerics_;
};

double Sum(const Vector& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

}  // namespace

std::vector<double> ReferenceOutputs(const Model& model, const FieldLayout& layout,
                                     const Batch& batch, const ReferenceParameters& parameters,
                                     uint32_t s) {
  const ReferenceSample sample(model, layout, batch, parameters, s);
  switch (model.kind_case()) {
    case Model::kLogisticRegression:
      return {sample.Linear() + sample.Bias()};
    case Model::kFm:
      return {sample.Linear(model.fm().dim()) + sample.Bias() +
              Sum(ReferenceSample::PairDots(sample.Embeddings(model.fm().dim())))};
    case Model::kWideDeep: {
      const Model::WideDeep& spec = model.wide_deep();
      return {sample.Linear(spec.dim()) + sample.Bias() +
              sample.Mlp("mlp", sample.DeepInputs(spec.dim()), spec.hidden_size() + 1, false)[0]};
    }
    case Model::kDeepfm: {
      const Model::DeepFm& spec = model.deepfm();
      return {sample.Linear(spec.dim()) + sample.Bias() +
              Sum(ReferenceSample::PairDots(sample.Embeddings(spec.dim()))) +
              sample.Mlp("mlp", sample.DeepInputs(spec.dim()), spec.hidden_size() + 1, false)[0]};
    }
    case Model::kDlrm: {
      const Model::Dlrm& spec = model.dlrm();
      std::vector<Vector> vectors = sample.Embeddings(spec.dim());
      Vector top_inputs;
      if (batch.numeric_count > 0) {
        top_inputs = sample.Mlp("bottom", sample.numerics(), spec.bottom_size(), true);
        vectors.insert(vectors.begin(), top_inputs);
      }
      const Vector dots = ReferenceSample::PairDots(vectors);
      top_inputs.insert(top_inputs.end(), dots.begin(), dots.end());
      return sample.Mlp("top", top_inputs, spec.top_size() + 1, false);
    }
    case Model::kMlp:
      return sample.Mlp("mlp", sample.numerics(), model.mlp().hidden_size() + 1, false);
    case Model::kMatrixFactorization: {
      const Model::MatrixFactorization& spec = model.matrix_factorization();
      return {spec.mean() + sample.Linear(spec.dim()) +
              Sum(ReferenceSample::PairDots(sample.Embeddings(spec.dim())))};
    }
    case Model::kDcn: {
      const Model::Dcn& spec = model.dcn();
      const Vector inputs = sample.DeepInputs(spec.dim());
      const Vector crossed = sample.CrossLayers(inputs, spec.cross_layers(), spec.rank() > 0);
      if (spec.hidden().empty()) return sample.Mlp("output", crossed, 1, false);
      Vector last = spec.parallel() ? crossed : Vector();
      const Vector deep =
          sample.Mlp("mlp", spec.parallel() ? inputs : crossed, spec.hidden_size(), true);
      last.insert(last.end(), deep.begin(), deep.end());
      return sample.Mlp("output", last, 1, false);
    }
    case Model::kMmoe: {
      const Model::Mmoe& spec = model.mmoe();
      const Vector inputs = sample.DeepInputs(spec.dim());
      Vector outputs;
      for (uint32_t t = 0; t < batch.label_count; ++t) {
        Vector gate{1};
        if (spec.experts() > 1) gate = sample.Mlp(absl::StrCat("gate/", t), inputs, 1, false);
        double normalizer = 0;
        for (double& value : gate) normalizer += value = std::exp(value);
        Vector mixture;
        for (uint32_t e = 0; e < spec.experts(); ++e) {
          const Vector expert =
              sample.Mlp(absl::StrCat("expert/", e), inputs, spec.expert_size(), true);
          mixture.resize(expert.size());
          for (size_t i = 0; i < expert.size(); ++i) mixture[i] += gate[e] / normalizer * expert[i];
        }
        outputs.push_back(
            sample.Mlp(absl::StrCat("tower/", t), mixture, spec.tower_size() + 1, false)[0]);
      }
      return outputs;
    }
    case Model::kDin: {
      const Model::Din& spec = model.din();
      return sample.Mlp("mlp", sample.DeepInputs(spec.dim()), spec.hidden_size() + 1, false);
    }
    case Model::KIND_NOT_SET:
      break;
  }
  return {};
}

double ReferenceLossSum(const Model& model, Loss loss, const FieldLayout& layout,
                        const Batch& batch, const ReferenceParameters& parameters) {
  double sum = 0;
  for (uint32_t s = 0; s < batch.samples; ++s) {
    const Vector outputs = ReferenceOutputs(model, layout, batch, parameters, s);
    for (uint32_t l = 0; l < batch.label_count; ++l) {
      const float label = batch.labels[s * batch.label_count + l];
      double weight = batch.weights.empty() ? 1 : batch.weights[s];
      if (!model.mmoe().label_weights().empty()) weight *= model.mmoe().label_weights(l);
      if (loss == SQUARED) {
        sum += weight * (outputs[l] - label) * (outputs[l] - label) / 2;
      } else if (loss == LOGISTIC) {
        const double probability = 1 / (1 + std::exp(-outputs[l]));
        sum -= weight * std::log(label > 0 ? probability : 1 - probability);
      } else {
        double normalizer = 0;
        for (const double output : outputs) normalizer += std::exp(output);
        sum -= weight * std::log(std::exp(outputs[static_cast<size_t>(label)]) / normalizer);
      }
    }
  }
  return sum;
}

}  // namespace pawl
