// The exponential, over `Vec`. Include after one vec_*.h.
#pragma once

namespace {

// exp(x), relative error below 3e-7 on [-87, 88]; infinite above, never below the smallest normal
// number. A NaN stays.
inline Vec::Reg Exp(Vec::Reg x) {
  x = Vec::Min(Vec::Set(89.0f), Vec::Max(Vec::Set(-87.0f), x));
  const Vec::Reg n = Vec::Round(Vec::Mul(x, Vec::Set(1.44269504f)));
  Vec::Reg r = Vec::Fma(n, Vec::Set(-0.693359375f), x);
  r = Vec::Fma(n, Vec::Set(2.12194440e-4f), r);
  Vec::Reg p = Vec::Set(1.9875691e-4f);
  constexpr float kTaylor[] = {1.3981999e-3f, 8.3334519e-3f, 4.1665796e-2f, 1.6666666e-1f,
                               0.5f,          1.0f,          1.0f};
  for (const float c : kTaylor) p = Vec::Fma(p, r, Vec::Set(c));
  return Vec::Mul(p, Vec::Exp2(n));
}

}  // namespace
