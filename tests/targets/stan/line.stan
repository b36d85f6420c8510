data {
  int<lower=1> n;
  vector[n] x;
  vector[n] y;
}
parameters {
  real a;
  real b;
  real<lower=0> sigma;
}
model {
  a ~ normal(0, 2);
  b ~ student_t(4, 0, 1);
  sigma ~ exponential(0.7);
  y ~ normal(a + b * x, sigma);
}
