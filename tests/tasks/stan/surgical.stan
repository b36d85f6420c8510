data {
  int N;
  array[N] int r;
  array[N] int n;
}
parameters {
  real mu;
  real<lower=0> sigmasq;
  vector[N] b;
}
model {
  mu ~ normal(0, 1000);
  sigmasq ~ inv_gamma(0.001, 0.001);
  b ~ normal(mu, sqrt(sigmasq));
  r ~ binomial_logit(n, b);
}
