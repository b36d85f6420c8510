data {
  int N;
  array[N] real x;
  array[N] int k;
}
parameters {
  real<lower=0> rho;
  real<lower=0> alpha;
  vector[N] f_tilde;
}
model {
  rho ~ gamma(25, 4);
  alpha ~ normal(0, 2);
  f_tilde ~ std_normal();
  k ~ poisson_log(cholesky_decompose(add_diag(gp_exp_quad_cov(x, alpha, rho), 1e-10)) * f_tilde);
}
