data {
  int N;
  vector[N] kid_score;
  vector[N] mom_hs;
  vector[N] mom_iq;
}
parameters {
  vector[4] beta;
  real<lower=0> sigma;
}
model {
  sigma ~ cauchy(0, 2.5);
  for (i in 1 : N) {
    kid_score[i] ~ normal(beta[1] + beta[2] * mom_hs[i] + (beta[3] + beta[4] * mom_hs[i]) * mom_iq[i], sigma);
  }
}
