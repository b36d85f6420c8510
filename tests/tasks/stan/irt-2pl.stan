data {
  int I;
  int J;
  array[I, J] int y;
}
parameters {
  real<lower=0> sigma_theta;
  vector[J] theta;
  real<lower=0> sigma_a;
  vector<lower=0>[I] a;
  real mu_b;
  real<lower=0> sigma_b;
  vector[I] b;
}
model {
  [sigma_theta, sigma_a, sigma_b] ~ cauchy(0, 2);
  mu_b ~ normal(0, 5);
  theta ~ normal(0, sigma_theta);
  a ~ lognormal(0, sigma_a);
  b ~ normal(mu_b, sigma_b);
  for (i in 1 : I) {
    for (j in 1 : J) {
      y[i, j] ~ bernoulli_logit(a[i] * (theta[j] - b[i]));
    }
  }
}
