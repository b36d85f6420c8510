data {
  int N;
  array[N] real x;
  vector[N] y;
}
parameters {
  real<lower=0> rho;
  real<lower=0> alpha;
  real<lower=0> sigma;
}
model {
  rho ~ gamma(25, 4);
  alpha ~ normal(0, 2);
  sigma ~ std_normal();
  y ~ multi_normal(zeros_vector(N), add_diag(gp_exp_quad_cov(x, alpha, rho), sigma));
}
