functions {
  vector scales(vector frequency, real sd, real length) {
    return sd * sqrt(sqrt(2 * pi()) * length) * exp(-0.25 * square(length * frequency));
  }
}
data {
  int N;
  vector[N] Y;
  int NBgp_1;
  matrix[N, NBgp_1] Xgp_1;
  array[NBgp_1] vector[1] slambda_1;
  int NBgp_sigma_1;
  matrix[N, NBgp_sigma_1] Xgp_sigma_1;
  array[NBgp_sigma_1] vector[1] slambda_sigma_1;
}
parameters {
  real Intercept;
  real<lower=0> sdgp_1;
  real<lower=0> lscale_1;
  vector[NBgp_1] zgp_1;
  real Intercept_sigma;
  real<lower=0> sdgp_sigma_1;
  real<lower=0> lscale_sigma_1;
  vector[NBgp_sigma_1] zgp_sigma_1;
}
model {
  vector[N] mu = Intercept + Xgp_1 * (scales(to_vector(slambda_1[ : , 1]), sdgp_1, lscale_1) .* zgp_1);
  vector[N] log_sd = Intercept_sigma
    + Xgp_sigma_1 * (scales(to_vector(slambda_sigma_1[ : , 1]), sdgp_sigma_1, lscale_sigma_1) .* zgp_sigma_1);
  Intercept ~ student_t(3, -13, 36);
  Intercept_sigma ~ student_t(3, 0, 10);
  [sdgp_1, sdgp_sigma_1] ~ student_t(3, 0, 36);
  [lscale_1, lscale_sigma_1] ~ inv_gamma(1.124909, 0.0177);
  zgp_1 ~ std_normal();
  zgp_sigma_1 ~ std_normal();
  Y ~ normal(mu, exp(log_sd));
}
