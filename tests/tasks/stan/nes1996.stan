data {
  int N;
  vector[N] partyid7;
  vector[N] real_ideo;
  vector[N] race_adj;
  vector[N] educ1;
  vector[N] gender;
  vector[N] income;
  array[N] int age_discrete;
}
parameters {
  vector[9] beta;
  real<lower=0> sigma;
}
model {
  for (i in 1 : N) {
    real age = age_discrete[i] > 1 ? beta[2 + age_discrete[i]] : 0;
    partyid7[i] ~ normal(beta[1] + beta[2] * real_ideo[i] + beta[3] * race_adj[i] + age + beta[7] * educ1[i]
                         + beta[8] * gender[i] + beta[9] * income[i], sigma);
  }
}
