data {
  int n;
  array[n] int C;
  vector[n] year;
}
parameters {
  real<lower=-20, upper=20> alpha;
  real<lower=-10, upper=10> beta1;
  real<lower=-10, upper=20> beta2;
  real<lower=-10, upper=10> beta3;
  vector[n] eps;
  real<lower=0, upper=5> sigma;
}
model {
  beta2 ~ uniform(-10, 10);
  eps ~ normal(0, sigma);
  C ~ poisson_log(alpha + year .* (beta1 + year .* (beta2 + year * beta3)) + eps);
}
