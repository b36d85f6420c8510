data {
  int n;
  int d;
  array[n] int y;
  matrix[n, d] x;
  real scale_icept;
  real scale_global;
  real nu_global;
  real nu_local;
  real slab_scale;
  real slab_df;
}
parameters {
  real beta0;
  vector[d] z;
  real<lower=0> tau;
  vector<lower=0>[d] lambda;
  real<lower=0> caux;
}
model {
  real c2 = square(slab_scale) * caux;
  vector[d] scale = tau * lambda ./ sqrt(1 + square(tau * lambda) / c2);
  z ~ std_normal();
  lambda ~ student_t(nu_local, 0, 1);
  tau ~ student_t(nu_global, 0, 2 * scale_global);
  caux ~ inv_gamma(0.5 * slab_df, 0.5 * slab_df);
  beta0 ~ normal(0, scale_icept);
  y ~ bernoulli_logit(beta0 + x * (z .* scale));
}
