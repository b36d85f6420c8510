data {
  int I;
  array[I] int n;
  array[I] int N;
  vector[I] x1;
  vector[I] x2;
}
parameters {
  real alpha0;
  real alpha1;
  real alpha12;
  real alpha2;
  real<lower=0> tau;
  vector[I] b;
}
model {
  [alpha0, alpha1, alpha12, alpha2] ~ normal(0, 1000);
  tau ~ gamma(0.001, 0.001);
  b ~ normal(0, 1 / sqrt(tau));
  n ~ binomial_logit(N, alpha0 + alpha1 * x1 + alpha2 * x2 + alpha12 * x1 .* x2 + b);
}
