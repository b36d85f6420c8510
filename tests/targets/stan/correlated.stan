data {
  int<lower=1> n;
  int<lower=2> d;
  array[n] vector[d] y;
}
parameters {
  vector[d] mu;
  vector<lower=0>[d] scale;
  cholesky_factor_corr[d] L;
}
model {
  mu ~ normal(0, 2);
  scale ~ lognormal(0, 1);
  L ~ lkj_corr_cholesky(3);
  y ~ multi_normal_cholesky(mu, diag_pre_multiply(scale, L));
}
generated quantities {
  matrix[d, d] correlation = multiply_lower_tri_self_transpose(L);
}
